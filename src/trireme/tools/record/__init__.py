"""`trireme record`: requests of a running server to a file."""
