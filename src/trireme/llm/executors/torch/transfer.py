"""Takes tensors from files to a GPU, one by one, through memory that the GPU reads by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import torch

log = logging.getLogger(__name__)

_STAGE_BYTES = 64 * 2**20


def stream(
    tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device, total_bytes: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor on the device, in the type it has; tells of every tenth of about so many bytes that has come over."""
    staging = _Staging(device)
    sent, told = 0, 0
    for name, tensor in tensors:
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
