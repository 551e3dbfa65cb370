"""What threads beside the event loop have in common."""
