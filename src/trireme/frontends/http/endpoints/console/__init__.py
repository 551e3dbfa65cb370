"""The console over HTTP: its page, and the data that the page asks for."""
