"""Which models can do without one queue for all their workers."""

from __future__ import annotations

from trireme.app.leases.counts import MAX_BATCH_SIZES
from trireme.backends.builtin import catalog as builtin
from trireme.backends.python.host.backend import PythonBackend
from trireme.config.model_config import ModelConfig
from trireme.registry.model import Model


def leasable_backend(model: Model) -> PythonBackend | None:
    """What runs a model whose workers may be leased: where nothing but its statistics is common to its requests; None
    for any other model."""
    backend, stats = model.backend, model.stats
    if not isinstance(backend, PythonBackend) or not is_plain(model.config):
        return None
    if model.gate is not None or stats.summaries is not None or stats.first_response is not None:
        return None
    return backend


def may_be_leased(config: ModelConfig) -> bool:
    """Whether worker processes run a model of this configuration, and may be leased as far as that says."""
    return config.backend not in builtin.FACTORIES and is_plain(config)


def is_plain(config: ModelConfig) -> bool:
    """Whether the configuration asks for nothing that one queue has to know of all requests."""
    if config.sequence_batching is not None or config.is_decoupled or config.has_response_cache:
        return False
    if config.max_batch_size > MAX_BATCH_SIZES:
        return False
    batching = config.dynamic_batching
    if batching is None:
        return True
    policy = batching.default_queue_policy
    has_policy = policy.default_timeout_us or policy.max_queue_size or policy.allow_timeout_override
    return not (batching.priority_levels or batching.preserve_ordering or batching.max_queue_delay_us or has_policy)
