"""The gRPC listener."""
