"""One model computed by several processes, each with a part of its matrices."""
