"""The commands: `tritonserver` for what already calls it, `trireme` for people."""
