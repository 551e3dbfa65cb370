"""The folder that is served."""
