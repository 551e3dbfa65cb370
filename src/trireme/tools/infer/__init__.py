"""One request from the shell: what is given becomes tensors, and tensors become something to read or a file."""
