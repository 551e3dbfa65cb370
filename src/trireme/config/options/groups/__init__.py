"""The options of the server, by what they are about."""
