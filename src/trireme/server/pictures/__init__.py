"""Pictures to tensors, in processes of their own: what a client sends is not decoded in the server."""
