"""How chunks of prompts are cut for the kernel that reads the cache for them."""

from __future__ import annotations

CHUNK_ROWS = 64
"""Rows of a chunk in a program, at most."""
SPLIT_TILES = 4
"""So many tiles of chunks may have their keys split; more keep the processors busy as they are."""
_FEWEST = 16
"""Matrix units take no fewer."""


def tile_rows_for(rows: int) -> int:
    """What programs are made for where all chunks together have so many rows."""
    return min(CHUNK_ROWS, max(_FEWEST, 1 << (rows - 1).bit_length()))
