"""The load itself: one process with one event loop that keeps requests under way."""
