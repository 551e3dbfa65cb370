"""Makes engine folders: rounds matrices to few bits, with or without calibration, and measures what that costs."""
