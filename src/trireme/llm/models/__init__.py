"""The architectures: what a checkpoint's config.json says, and what its weights are called."""
