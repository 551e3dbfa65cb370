"""What this server can do, said once, without a protocol."""
