"""What comes to the engine from other threads: messages for its own, and new requests."""
