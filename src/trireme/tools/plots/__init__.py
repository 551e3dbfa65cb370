"""Plots as text: what reports of measurements draw."""
