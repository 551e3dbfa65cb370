"""What server and worker share: messages, and the memory that tensors travel in."""
