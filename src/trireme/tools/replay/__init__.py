"""`trireme replay`: a recording played back against a server, and its answers compared."""
