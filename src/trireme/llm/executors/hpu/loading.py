"""Puts a checkpoint's weights on a Gaudi, and an executor around them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch

from trireme.llm.executors.hpu.executor import HpuExecutor
from trireme.llm.executors.hpu.software import DEVICE, GaudiSoftware
from trireme.llm.executors.limits import check_room
from trireme.llm.executors.port import Executor
from trireme.llm.executors.torch.memory import usable_bytes
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions

log = logging.getLogger(__name__)


def load_on_hpu(
    spec: DecoderSpec, weights: Iterable[tuple[str, StoredWeight]], options: EngineOptions, dtype: str
) -> Executor:
    """An executor on the worker's HPU, whose graphs an engine records; raises ExecutorError where it cannot be had."""
    software, kind = GaudiSoftware(), getattr(torch, dtype)
    free = usable_bytes(torch.device(DEVICE), options)
    check_room(spec, options, kind.itemsize, dtype, free, "the HPU has {} for it (memory_share)")
    mode = "recorded graphs" if software.is_lazy else "compiled steps"
    log.info("%s runs on an HPU with %s, in %s", spec.architecture, mode, dtype)
    return HpuExecutor(spec, host_tensors(weights, kind), options, software, kind)
