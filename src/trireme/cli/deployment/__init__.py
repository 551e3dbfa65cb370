"""`trireme deploy`, step by step."""
