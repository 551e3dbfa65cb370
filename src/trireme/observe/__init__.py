"""What the server tells about itself: statistics, metrics, logs."""
