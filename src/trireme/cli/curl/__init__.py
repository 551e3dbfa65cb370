"""The `curl` lines that a started server shows for its models."""
