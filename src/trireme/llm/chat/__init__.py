"""What a chat model writes beside its answer: reasoning, and calls of tools."""
