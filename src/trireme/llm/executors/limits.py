"""How many blocks a cache of some bytes has, and with it the limits of an executor."""

from __future__ import annotations

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.scheduler import SchedulerLimits

DEFAULT_CACHE_BYTES = 512 * 2**20


def block_bytes(spec: DecoderSpec, block_size: int, item_bytes: int) -> int:
    """What keys and values of one block take in all layers."""
    return 2 * item_bytes * spec.layer_count * block_size * spec.kv_head_count * spec.head_size


def limits_for(
    spec: DecoderSpec, options: EngineOptions, default_cache_bytes: int = DEFAULT_CACHE_BYTES, item_bytes: int = 4
) -> SchedulerLimits:
    """As many blocks as fit into the cache's bytes, and no more than the sequences can ever use."""
    room = options.cache_bytes if options.cache_bytes is not None else default_cache_bytes
    each = block_bytes(spec, options.block_size, item_bytes)
    usable = options.max_sequences * -(-spec.max_positions // options.block_size)
    count = min(room // each, usable)
    if count < 1:
        raise ExecutorError(f"a cache of {room} bytes has no room for one block, which takes {each}; enlarge it")
    return SchedulerLimits(
        options.block_size,
        count,
        options.max_sequences,
        options.max_step_tokens,
        options.has_prefix_cache,
        spec.rope.short_positions if spec.rope is not None else 0,
    )
