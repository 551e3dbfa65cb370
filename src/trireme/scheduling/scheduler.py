"""Which scheduler a configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from trireme.config.model_config import ModelConfig
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.ports import InferencePort
from trireme.observe.stats import ModelStats
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.dynamic_batch import Defer, DynamicBatchScheduler
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler
from trireme.scheduling.sequence.scheduler import SchedulerContext, SequenceScheduler
from trireme.scheduling.timer import CallLater

InstanceScheduler: TypeAlias = DirectScheduler | SequenceScheduler
"""Those with instances, which report to them."""


def create_scheduler(
    config: ModelConfig,
    stats: ModelStats,
    *,
    inference: InferencePort | None = None,
    clock: Clock = monotonic_ns,
    call_later: CallLater | None = None,
    defer: Defer | None = None,
    folder: Path | None = None,
) -> InstanceScheduler | EnsembleScheduler:
    """The scheduler of the model. `folder` is the model's, where its sequences begin with a state from a file."""
    if config.is_ensemble:
        if inference is None:
            raise ValueError(f"ensemble '{config.name}' needs a way to run its steps")
        return EnsembleScheduler(config, stats, inference, clock=clock)
    if config.sequence_batching is not None:
        context = SchedulerContext(clock, call_later, defer, folder)
        return SequenceScheduler(config, config.sequence_batching, stats, context)
    if config.dynamic_batching is None:
        return DirectScheduler(stats, clock=clock)
    return DynamicBatchScheduler(
        config,
        config.dynamic_batching,
        stats,
        clock=clock,
        call_later=call_later,
        defer=defer,
    )
