"""How many blocks a cache of some bytes has, and with it the limits of an executor."""

from __future__ import annotations

import math

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.spec import DecoderSpec, shape_of
from trireme.llm.options import CacheType, EngineOptions
from trireme.llm.step_plan import SchedulerLimits

DEFAULT_CACHE_BYTES = 512 * 2**20


def token_items(spec: DecoderSpec) -> int:
    """How many numbers keys and values of one token have in all layers."""
    return 2 * spec.layer_count * spec.kv_head_count * spec.head_size


def limits_for(
    spec: DecoderSpec,
    options: EngineOptions,
    default_cache_bytes: int = DEFAULT_CACHE_BYTES,
    item_bytes: int = 4,
    items: int | None = None,
) -> SchedulerLimits:
    """As many blocks as fit into the cache's bytes, and no more than the sequences can ever use.

    `items` is what a token has in the cache, where that is not what the spec says.
    """
    room = options.cache_bytes if options.cache_bytes is not None else default_cache_bytes
    each = item_bytes * options.block_size * (token_items(spec) if items is None else items)
    usable = options.max_sequences * -(-spec.max_positions // options.block_size)
    kept = usable if options.cache_tokens is None else -(-options.cache_tokens // options.block_size)
    count = min(room // each, usable, kept)
    if count < 1:
        what = f"a cache of {room} bytes has no room for one block, which takes {each}; enlarge it (cache_bytes)"
        if options.cache_bytes is None:
            what = (
                f"the weights leave {_size(max(room, 0))} for the key/value cache, and one block of it takes "
                f"{_size(each)}; use a smaller model or dtype, raise {_share_name(options)}, or free memory on the "
                "device"
            )
        raise ExecutorError(what)
    return SchedulerLimits(
        options.block_size,
        count,
        options.max_sequences,
        options.max_step_tokens,
        options.has_prefix_cache,
        spec.rope.short_positions if spec.rope is not None else 0,
        "cache_tokens" if kept == count < min(room // each, usable) else "cache_bytes",
    )


def weight_count(spec: DecoderSpec) -> int:
    """How many numbers the model's matrices have."""
    count = sum(math.prod(shape_of(f"{name}.weight", spec)) for name in _modules_outside_layers(spec))
    for layer in range(spec.layer_count):
        names = ["qkv", "o"]
        if spec.has_experts(layer):
            names += ["router", "experts.up", "experts.down", "shared.up", "shared.down"]
        else:
            names += ["up", "down"]
        count += sum(math.prod(shape_of(f"layers.{layer}.{name}.weight", spec)) for name in names)
    return count


def check_room(
    spec: DecoderSpec,
    options: EngineOptions,
    item_bytes: int,
    dtype: str,
    free: int | None,
    what_is_free: str,
    packed_bytes: int | None = None,
) -> None:
    """Raises ExecutorError where weights and cache need more than there is; `free` None: nobody knows.

    `packed_bytes` is what the weights take where they stay quantized.
    """
    block = item_bytes * options.block_size * token_items(spec)
    weights = weight_count(spec) * item_bytes
    if packed_bytes is not None:
        weights, dtype = packed_bytes, "their quantized form"
    check_bytes(weights, options.cache_bytes or block, dtype, free, what_is_free)


def check_bytes(weights: int, cache: int, dtype: str, free: int | None, what_is_free: str) -> None:
    """The same for who knows how much they take."""
    if free is None or weights + cache <= free:
        return
    advice = "lower cache_bytes" if weights < free else "ask for a smaller dtype, or use a smaller model"
    raise ExecutorError(
        f"the model does not fit: its weights take {_size(weights)} in {dtype} and its cache {_size(cache)}, but "
        f"{what_is_free.format(_size(free))}; {advice}"
    )


def _modules_outside_layers(spec: DecoderSpec) -> list[str]:
    names = ["embed"] if spec.is_tied else ["embed", "head"]
    if spec.embedding_size:
        names += ["embed_in", "head_in"]
    if spec.rope is None and not spec.has_alibi:
        names.append("positions")
    return names


def _share_name(options: EngineOptions) -> str:
    return "memory_share" if options.cache_share is None else "cache_share"


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 // 10 else f"{count / 2**20:.2f} MiB"


def refuse_ranks(options: EngineOptions, how: str) -> None:
    """Raises ExecutorError where the model is to be divided among ranks, and runs in a way that cannot be."""
    if (options.ranks or 1) > 1:
        raise ExecutorError(
            f"tensor_parallel {options.ranks} needs PyTorch on the CPU or on NVIDIA's GPUs and an architecture of the "
            f"engine's own, and this model runs {how}: leave the parameter out"
        )


def refuse_batch_invariance(options: EngineOptions, how: str) -> None:
    """Raises ExecutorError where texts must not change with the batch, and the model does not run with our kernels."""
    if options.is_batch_invariant:
        raise ExecutorError(
            f"batch_invariant needs the kernels for NVIDIA GPUs, and this model runs {how}: leave the parameter out"
        )


def refuse_small_cache(options: EngineOptions, how: str) -> None:
    """Raises ExecutorError where keys and values are to be kept in eight bits, and the model runs without that."""
    if options.cache_type is CacheType.FP8:
        raise ExecutorError(
            f"kv_cache_dtype fp8 needs PyTorch on the CPU or on NVIDIA's GPUs and an architecture of the engine's own, "
            f"and this model runs {how}: leave the parameter out"
        )


def refuse_beside_numpy(options: EngineOptions, dtype: str) -> None:
    """Raises ExecutorError where something is asked for that numpy does not do, whatever the model is."""
    if dtype not in ("auto", "float32"):
        raise ExecutorError(f"numpy computes in float32 alone, not in {dtype}; install torch for other types")
    refuse_batch_invariance(options, "with numpy")
    refuse_small_cache(options, "with numpy")
    refuse_ranks(options, "with numpy")


def refuse_quantized_batch_invariance(options: EngineOptions, quantization: str) -> None:
    """Raises ExecutorError where texts must not change with the batch, and the model's weights have few bits."""
    if options.is_batch_invariant and quantization:
        raise ExecutorError(
            f"batch_invariant needs weights of 16 or 32 bits, and this model's are quantized ({quantization}): leave "
            "the parameter out, or serve the model that it was made from"
        )
