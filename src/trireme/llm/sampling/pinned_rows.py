"""Memory that a device reads from directly, kept for rows of bytes that are sent with every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

_BUFFERS: Final = 3
"""So many sends may be under way before one waits for the first of them."""


class PinnedRows:
    """To pin memory anew for each send takes longer than to fill it."""

    def __init__(self, size: int, device: torch.device) -> None:
        """`size`: of a row, in bytes. Nothing is pinned before the first send."""
        self._size = size
        self._device = device
        self._buffers: list[_PinnedBuffer | None] = [None] * _BUFFERS
        self._next = 0

    def send(self, rows: Sequence[npt.NDArray[np.uint8]]) -> torch.Tensor:
        """A copy on the device, `[rows, size]`, behind the work that it has been given."""
        if self._device.type != "cuda":
            return torch.from_numpy(np.stack(rows)).to(self._device)
        self._next = (self._next + 1) % _BUFFERS
        buffer = self._buffers[self._next]
        if buffer is None or len(buffer.memory) < len(rows):
            if buffer is not None:
                buffer.sent.synchronize()
            buffer = self._buffers[self._next] = _PinnedBuffer(len(rows), self._size)
        return buffer.send(rows, self._device)


class _PinnedBuffer:
    def __init__(self, count: int, size: int) -> None:
        room = 1 << (count - 1).bit_length()
        self.memory = torch.empty((room, size), dtype=torch.uint8, pin_memory=True)
        self._bytes = self.memory.numpy()
        self.sent = torch.cuda.Event()

    def send(self, rows: Sequence[npt.NDArray[np.uint8]], device: torch.device) -> torch.Tensor:
        self.sent.synchronize()  # before it is overwritten; at once where nothing was sent
        for place, row in enumerate(rows):
            self._bytes[place] = row
        found = self.memory[: len(rows)].to(device, non_blocking=True)
        self.sent.record()
        return found
