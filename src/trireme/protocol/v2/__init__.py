"""The KServe v2 protocol: JSON, binary tensors, protobuf, and the generate extension."""
