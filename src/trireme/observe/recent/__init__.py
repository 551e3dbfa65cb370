"""What happened lately, kept within bounds for people who look: lines of the log, slow and failed requests."""
