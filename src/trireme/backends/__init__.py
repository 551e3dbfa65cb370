"""How a model runs: a worker process, or code inside this one."""
