"""Language models under load: time to the first token, time between tokens, tokens per second."""
