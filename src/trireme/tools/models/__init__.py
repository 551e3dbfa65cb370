"""The models of a running server as tables, and a view of what they do."""
