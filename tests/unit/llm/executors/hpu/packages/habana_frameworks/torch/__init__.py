"""Stands in for Gaudi's software where tests look at how it is used: graphs are really recorded and really played."""

events: list[tuple[object, ...]] = []
"""What has been asked of it, in order."""
