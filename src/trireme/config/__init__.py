"""Model and server configuration: read, completed, checked."""
