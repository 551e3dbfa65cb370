"""Files that the server adds to: lines of logs, traces. A full disk costs what does not fit, and nothing else."""
