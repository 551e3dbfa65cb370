"""What is asked of a server beside the load: metadata, configuration, statistics, settings."""
