"""How a worker process is started, watched and ended."""
