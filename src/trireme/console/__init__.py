"""The console: what the server is doing, for people with a browser."""
