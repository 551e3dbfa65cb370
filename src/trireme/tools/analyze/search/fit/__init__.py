"""The default search: a queueing model, fitted to a few probes, says what is worth measuring."""
