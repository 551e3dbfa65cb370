"""The command line: flags, their values, and what does not go together."""
