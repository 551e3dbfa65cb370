"""The description of the HTTP API, written from its routes."""
