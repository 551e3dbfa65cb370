"""The commands that record requests and play them back."""
