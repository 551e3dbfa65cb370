"""Takes tensors from files to a GPU, one by one, through memory that the GPU reads by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch

from trireme.llm.kernels.packed_matrix import PackedMatrix

T = TypeVar("T", torch.Tensor, torch.Tensor | PackedMatrix)

log = logging.getLogger(__name__)

_STAGE_BYTES = 64 * 2**20


def stream(tensors: Iterable[tuple[str, T]], device: torch.device, total_bytes: int) -> Iterator[tuple[str, T]]:
    """Each tensor or packed matrix on the device, in the type it has.

    Tells of every tenth of about so many bytes that has come over.
    """
    staging = _Staging(device)
    sent, told = 0, 0
    for name, tensor in tensors:
        if isinstance(tensor, PackedMatrix):
            yield name, staging.send_packed(tensor)
        else:
            yield name, staging.send(tensor)
        sent += tensor.nbytes
        tenth = min(10 * sent // max(total_bytes, 1), 10)
        if tenth > told:
            told = tenth
            log.info("weights on %s: %d%% (%.1f GiB)", device, 10 * tenth, sent / 2**30)


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
