"""Which scheduler a configuration asks for."""

from __future__ import annotations

from pathlib import Path

from trireme.config.model_config import ModelConfig
from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.ports import InferencePort
from trireme.observe.stats import ModelStats
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.dynamic_batch import Defer, DynamicBatchScheduler
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler
from trireme.scheduling.sequence.scheduler import SchedulerContext, SequenceScheduler
from trireme.scheduling.sequence.strategies import DirectSequenceScheduler, OldestSequenceScheduler
from trireme.scheduling.timer import CallLater


def create_scheduler(
    config: ModelConfig,
    stats: ModelStats,
    *,
    inference: InferencePort | None = None,
    clock: Clock = monotonic_ns,
    call_later: CallLater | None = None,
    defer: Defer | None = None,
    folder: Path | None = None,
) -> DirectScheduler | SequenceScheduler | EnsembleScheduler:
    """The scheduler of the model; all but an ensemble's are also the runner that its instances report to. `folder` is
    the model's, where its sequences begin with a state from a file."""
    if config.is_ensemble:
        if inference is None:
            raise ValueError(f"ensemble '{config.name}' needs a way to run its steps")
        return EnsembleScheduler(config, stats, inference, clock=clock)
    if config.sequence_batching is not None:
        context = SchedulerContext(clock, call_later, defer, folder)
        return _sequence_scheduler(config, config.sequence_batching, stats, context)
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


def _sequence_scheduler(
    config: ModelConfig, batching: SequenceBatchingConfig, stats: ModelStats, context: SchedulerContext
) -> SequenceScheduler:
    if batching.oldest is None:
        return DirectSequenceScheduler(config, batching, stats, context)
    return OldestSequenceScheduler(config, batching, batching.oldest, stats, context)
