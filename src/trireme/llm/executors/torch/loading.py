"""Puts a checkpoint's weights where PyTorch computes on a processor, and an executor around them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch

from trireme.llm.executors.limits import check_room
from trireme.llm.executors.port import Executor
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.machine.host_memory import free_host_bytes

log = logging.getLogger(__name__)


def load_on_cpu(
    spec: DecoderSpec, weights: Iterable[tuple[str, StoredWeight]], options: EngineOptions, dtype: str
) -> Executor:
    """An executor on the processor; raises ExecutorError where the memory is too small."""
    kind = getattr(torch, dtype)
    check_room(spec, options, kind.itemsize, dtype, free_host_bytes(), "the machine has {} of memory free")
    log.info("%s runs on the CPU with PyTorch, in %s", spec.architecture, dtype)
    return TorchExecutor(spec, host_tensors(weights, kind), options, torch.device("cpu"), kind)
