"""One configuration under one load, measured."""
