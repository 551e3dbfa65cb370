"""The ranks' sums over torch.distributed: gloo between processors, NCCL between GPUs of NVIDIA's."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks.division import Part

_JOIN_S = 60.0
_ADDRESS = "127.0.0.1"
"""All ranks are on one machine."""


class RankGroup:
    """All ranks of one model. Each of them calls the same methods in the same order."""

    def __init__(self, part: Part, store_file: str, device: torch.device, step_timeout_s: float) -> None:
        """Waits for the others; they meet by a file, and add up something: NCCL looks for the others no sooner."""
        check_library(device)
        self.part = part
        self._is_nccl = device.type == "cuda"
        library: Any = dist
        store = library.FileStore(store_file, part.count)
        store.set_timeout(timedelta(seconds=_JOIN_S))
        limit = timedelta(seconds=step_timeout_s)
        try:
            self._group: Any = _nccl(store, part) if self._is_nccl else _gloo(store, part, limit)
            self.sum(torch.ones(1, device=device)).item()
        except RuntimeError as error:
            name = "NCCL" if self._is_nccl else "gloo"
            raise ExecutorError(
                f"rank {part.rank} of {part.count} does not reach the others by {name}: {error}"
            ) from error

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Adds up what the ranks have, in place."""
        self._group.allreduce([values]).wait()
        return values

    def gather_columns(self, values: torch.Tensor, total: int) -> torch.Tensor:
        """In the first rank the columns of all, `[rows, total]`; in the others their own."""
        count = self.part.count
        sizes = [last - first for first, last in (Part(rank, count).range_of(total) for rank in range(count))]
        width = max(sizes)
        padded = functional.pad(values, (0, width - values.shape[1])).contiguous()
        options = dist.GatherOptions()
        options.rootRank = 0
        if self.part.rank:
            self._group.gather([], [padded], options).wait()
            return values
        found = [torch.empty_like(padded) for _ in range(count)]
        self._group.gather([found], [padded], options).wait()
        return torch.cat([one[:, :size] for one, size in zip(found, sizes, strict=True)], 1)

    def abort(self) -> None:
        """Ends a sum that waits for a rank which is gone; gloo notices by itself."""
        if self._is_nccl:
            with suppress(RuntimeError):
                self._group.abort()


def check_library(device: torch.device) -> None:
    """Raises ExecutorError where PyTorch was built without what ranks need on the device."""
    name = "NCCL" if device.type == "cuda" else "gloo"
    has = dist.is_available() and (dist.is_nccl_available() if device.type == "cuda" else dist.is_gloo_available())
    if not has:
        raise ExecutorError(
            f"ranks on '{device.type}' (tensor_parallel) need torch.distributed with {name}, and PyTorch "
            f"{torch.__version__} was built without it; install a build that has it, or leave the parameter out"
        )


def _gloo(store: Any, part: Part, limit: timedelta) -> Any:
    kind: Any = dist.ProcessGroupGloo
    options = kind._Options()
    options._devices = [kind.create_device(hostname=_ADDRESS)]
    options._timeout = limit
    return kind(store, part.rank, part.count, options)


def _nccl(store: Any, part: Part) -> Any:
    kind: Any = dist.ProcessGroupNCCL
    return kind(store, part.rank, part.count, kind.Options())
