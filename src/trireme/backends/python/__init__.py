"""Python models: one worker process per instance, spoken to over a socket and shared memory."""
