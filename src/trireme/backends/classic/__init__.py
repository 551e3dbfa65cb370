"""What the backends for classic models share: rows of a table in, predictions out; it runs in worker processes."""
