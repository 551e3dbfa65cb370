"""How chunks of prompts are cut for the kernel that reads the cache for them."""

from __future__ import annotations

CHUNK_ROWS = 64
"""Rows of a chunk in a program."""
