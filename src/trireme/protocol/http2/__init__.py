"""The server's half of HTTP/2 as a machine without input or output: bytes in, calls to a sink and bytes out."""
