"""HTTP/1.1: chunks, codings, bodies, events."""
