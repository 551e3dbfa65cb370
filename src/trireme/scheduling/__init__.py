"""When a request runs, and with whom."""
