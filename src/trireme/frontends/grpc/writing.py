"""One write to the socket for all that a turn of the event loop has produced."""

from __future__ import annotations

import asyncio
from typing import Final

from trireme.core.elements import Buffer

_JOINED_BYTES: Final = 1 << 16
"""What is written as one joined buffer; beyond it large pieces go to the socket as they are."""
_LARGE_PIECE_BYTES: Final = 8192


def write_pieces(transport: asyncio.Transport, pieces: list[Buffer]) -> bool:
    """One write; small pieces are joined, large ones are handed over without a copy. Whether it is much in all."""
    if len(pieces) == 1:
        transport.write(pieces[0])
        return False  # large ones have the head of a frame before them
    if sum(map(len, pieces)) <= _JOINED_BYTES:
        transport.write(b"".join(pieces))
        return False
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) < _LARGE_PIECE_BYTES:
            small.append(piece)
            continue
        if small:
            buffers.append(b"".join(small))
            small = []
        buffers.append(piece)
    if small:
        buffers.append(b"".join(small))
    transport.writelines(buffers)
    return True
