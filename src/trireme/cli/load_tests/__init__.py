"""Commands that load a server and measure it."""
