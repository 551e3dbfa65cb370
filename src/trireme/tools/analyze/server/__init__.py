"""The server under test: its models changed and put back, its resources watched, or a server of our own."""
