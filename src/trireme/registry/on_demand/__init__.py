"""Models that are loaded by the first request and thrown out when memory is short."""
