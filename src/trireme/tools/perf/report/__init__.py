"""Results as text, CSV and JSON."""
