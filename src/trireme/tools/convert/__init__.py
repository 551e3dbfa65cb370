"""`trireme convert`: checkpoints from one layout into another."""
