"""The format of recordings: calls of models, one behind the other, in frames that survive a cut."""
