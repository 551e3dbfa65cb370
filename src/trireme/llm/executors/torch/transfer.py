"""Takes tensors from files to a GPU, one by one, through memory that the GPU reads by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch

from trireme.llm.kernels.packed.packed_matrix import PackedMatrix

T = TypeVar("T", torch.Tensor, torch.Tensor | PackedMatrix)

log = logging.getLogger(__name__)

_STAGE_BYTES = 64 * 2**20


def stream(tensors: Iterable[tuple[str, T]], device: torch.device, total_bytes: int) -> Iterator[tuple[str, T]]:
    """Each tensor or packed matrix on the device, in the type it has; of about so many bytes, as the log tells."""
    staging = _Staging(device)
    progress = Progress(device, total_bytes)
    for name, tensor in tensors:
        if isinstance(tensor, PackedMatrix):
            yield name, staging.send_packed(tensor)
        else:
            yield name, staging.send(tensor)
        progress.add(tensor.nbytes)


class Progress:
    """Tells how much has come over, once a second at most: of a small model nothing."""

    def __init__(self, device: torch.device, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._total_bytes = max(total_bytes, 1)
        self._clock = clock
        self._sent_bytes = 0
        self._told_s = clock()

    def add(self, size_bytes: int) -> None:
        """So much more is there."""
        self._sent_bytes += size_bytes
        now_s = self._clock()
        if now_s - self._told_s >= 1:
            self._told_s = now_s
            share = min(self._sent_bytes / self._total_bytes, 1)
            log.info("weights on %s: %d%% (%.1f GiB)", self._device, int(100 * share), self._sent_bytes / 2**30)


class _Staging:
    """Two pieces of pinned memory: one is filled from the file while the other is read by the GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pieces = [torch.empty(_STAGE_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._events = [torch.cuda.Event() for _ in range(2)]
        self._turn = 0

    def send_packed(self, matrix: PackedMatrix) -> PackedMatrix:
        zeros = None if matrix.zeros is None else self.send(matrix.zeros)
        return replace(matrix, codes=self.send(matrix.codes), scales=self.send(matrix.scales), zeros=zeros)

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.contiguous().view(-1).view(torch.uint8)
        target = torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)
        flat = target.view(-1).view(torch.uint8)
        for first in range(0, source.numel(), _STAGE_BYTES):
            part = source[first : first + _STAGE_BYTES]
            piece, event = self._pieces[self._turn][: part.numel()], self._events[self._turn]
            event.synchronize()
            piece.copy_(part)
            flat[first : first + part.numel()].copy_(piece, non_blocking=True)
            event.record(torch.cuda.current_stream(self._device))
            self._turn = 1 - self._turn
        return target
