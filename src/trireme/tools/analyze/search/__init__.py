"""Which configurations and loads are measured, one after the other."""
