"""The server's options: each declared once, read from flags and the environment."""
