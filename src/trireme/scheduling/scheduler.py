"""Which scheduler a configuration asks for."""

from __future__ import annotations

from trireme.config.model_config import ModelConfig
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import UnsupportedError
from trireme.core.ports import InferencePort
from trireme.observe.stats import ModelStats
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.dynamic_batch import Defer, DynamicBatchScheduler
from trireme.scheduling.ensemble import EnsembleScheduler
from trireme.scheduling.timer import CallLater


def create_scheduler(
    config: ModelConfig,
    stats: ModelStats,
    *,
    inference: InferencePort | None = None,
    clock: Clock = monotonic_ns,
    call_later: CallLater | None = None,
    defer: Defer | None = None,
) -> DirectScheduler | EnsembleScheduler:
    """The scheduler of the model; all but an ensemble's are also the runner that its instances report to."""
    if config.is_ensemble:
        if inference is None:
            raise ValueError(f"ensemble '{config.name}' needs a way to run its steps")
        return EnsembleScheduler(config, stats, inference, clock=clock)
    if config.message is not None and config.message.HasField("sequence_batching"):
        raise UnsupportedError(
            f"model '{config.name}' asks for sequence_batching, which this server does not support yet; "
            "remove it from the configuration, or use dynamic_batching where the model keeps no state"
        )
    if config.dynamic_batching is None:
        return DirectScheduler(stats, clock=clock)
    return DynamicBatchScheduler(
        config, config.dynamic_batching, stats, clock=clock, call_later=call_later, defer=defer
    )
