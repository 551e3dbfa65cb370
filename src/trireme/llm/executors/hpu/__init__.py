"""Steps on Gaudi accelerators: every shape is one of a few, and is recorded once."""
