"""What the backends for compiled models share; it runs in worker processes and knows no framework."""
