"""A client of a running server for the commands, over HTTP or gRPC."""
