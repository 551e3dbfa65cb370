"""The server's half of the python backend: instances, their workers, and what passes between them."""
