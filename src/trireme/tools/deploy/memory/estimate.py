"""How much memory a model will take once it is served, counted before anything is fetched or started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trireme.machine.cpu_arithmetic import emulates
from trireme.tools.deploy.hub.weights import COMPUTE_BYTES, Weights, configured_dtype
from trireme.tools.deploy.memory.device import DeviceMemory
from trireme.tools.deploy.options import USUAL_BATCH_SIZE, DeployOptions, MemoryTooSmallError
from trireme.tools.deploy.sizes import count_text, size_text

_LONGEST_DEFAULT_TOKENS = 1024
_RUNTIME_BYTES = 600 << 20
"""What the worker takes before any weight is there: the interpreter, torch, transformers, the device's own context."""
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "n_ctx")
_FEED_FORWARD = ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "decoder_ffn_dim", "ffn_hidden_size")
_VOCABULARY = ("vocab_size",)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The table: what takes memory, and how much."""

    rows: tuple[tuple[str, int], ...]
    dtype: str
    """The datatype that the model computes in."""
    cache_bytes: int
    """Of the rows, what a smaller batch would save."""

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.rows)

    def table(self, memory: DeviceMemory) -> list[tuple[str, str]]:
        """The rows as text, with the comparison as the last ones."""
        rows = [(what, size_text(size)) for what, size in (*self.rows, ("total", self.total_bytes))]
        free = "unknown" if memory.free_bytes is None else size_text(memory.free_bytes)
        return [*rows, (f"free on {memory.device}{memory.note}", free)]


def estimate(
    config: Mapping[str, Any],
    weights: Weights,
    options: DeployOptions,
    device: str,
    *,
    is_generating: bool,
    dtype: str | None = None,
) -> Estimate:
    """Weights, cache of keys and values where the model writes text, passing values (roughly), and the runtime; with
    the datatype that somebody else chooses, or else as the transformers backend chooses it."""
    dtype = dtype or compute_dtype(options.dtype, config, weights, device)
    text = config.get("text_config")
    shapes = {**config, **text} if isinstance(text, Mapping) else config
    batch, size = options.batch_size or USUAL_BATCH_SIZE, COMPUTE_BYTES.get(dtype, 2)
    length = length_tokens(shapes, options)
    about = "" if weights.is_exact else "about "
    form = dtype if weights.is_unpacked or not weights.packed_as else f"{weights.packed_as}, as they are stored"
    rows = [(f"weights, {about}{count_text(weights.parameter_count)} in {form}", weights.loaded_bytes(dtype))]
    conversion = weights.conversion_bytes(dtype)
    if conversion:
        rows.append((f"conversion from {weights.packed_as or weights.stored_dtype} while it loads", conversion))
    cache = batch * length * _cache_bytes_per_token(shapes, size) if is_generating else 0
    if is_generating:
        rows.append((f"keys and values, {batch} x {length} tokens", cache))
    rows.append(("activations, roughly", _passing_bytes(shapes, batch, length, size, is_generating)))
    rows.append(("runtime", _RUNTIME_BYTES))
    return Estimate(tuple(rows), dtype, cache)


def compute_dtype(wanted: str, config: Mapping[str, Any], weights: Weights, device: str) -> str:
    """The datatype a model will be in: the one that was asked for, or the one it was saved in, but for those that a
    CPU emulates."""
    if wanted != "auto":
        return wanted
    dtype = saved_dtype(config, weights)
    return "float32" if device == "cpu" and emulates(dtype) else dtype


def saved_dtype(config: Mapping[str, Any], weights: Weights) -> str:
    """As the model was saved; of packed weights, that of the numbers they stand for."""
    stored = weights.stored_dtype if weights.stored_dtype in COMPUTE_BYTES or not weights.packed_as else "float16"
    return configured_dtype(config) or stored


def length_tokens(config: Mapping[str, Any], options: DeployOptions) -> int:
    """Tokens of one prompt with its answer that memory is counted for."""
    if options.length_tokens is not None:
        return options.length_tokens
    context = _number(config, _CONTEXT) or _LONGEST_DEFAULT_TOKENS
    return min(context, _LONGEST_DEFAULT_TOKENS)


def check_fit(found: Estimate, memory: DeviceMemory, options: DeployOptions) -> None:
    """Raises MemoryTooSmallError with advice where the model will not fit, unless the user insists."""
    if memory.free_bytes is None or found.total_bytes <= memory.free_bytes or options.is_forced:
        return
    lacking = found.total_bytes - memory.free_bytes
    raise MemoryTooSmallError(
        f"'{options.model}' will not fit: it needs about {size_text(found.total_bytes)}, and {memory.device} has "
        f"{size_text(memory.free_bytes)}{memory.note}: {size_text(lacking)} are missing.\n" + _advice(found, options)
    )


def _advice(found: Estimate, options: DeployOptions) -> str:
    advice = []
    if found.dtype == "float32":
        advice.append("--dtype bfloat16 halves the weights")
    batch = options.batch_size or USUAL_BATCH_SIZE
    if batch > 1 and found.cache_bytes:
        smaller = max(1, batch // 4)
        saved = found.cache_bytes - found.cache_bytes * smaller // batch
        advice.append(f"--batch {smaller} saves {size_text(saved)}, and a smaller --length saves too")
    advice.append("--device names another device ('trireme devices' lists them); or take a smaller model")
    advice.append("--force starts it all the same")
    return "What may help:\n" + "\n".join(f"  {line}" for line in advice)


def _passing_bytes(shapes: Mapping[str, Any], batch: int, length: int, size: int, is_generating: bool) -> int:
    """What a prompt holds in one layer at a time, and the scores of the next token."""
    hidden = _number(shapes, _HIDDEN)
    width = 4 * hidden + 2 * (_number(shapes, _FEED_FORWARD) or 4 * hidden)
    scores = batch * _number(shapes, _VOCABULARY) * 4 if is_generating else 0
    return batch * length * width * size + scores


def _cache_bytes_per_token(config: Mapping[str, Any], size: int) -> int:
    """Two vectors per layer: as wide as the heads that keep keys and values of their own."""
    heads = _number(config, _HEADS) or 1
    head_dim = _number(config, ("head_dim",)) or _number(config, _HIDDEN) // heads
    kv_heads = _number(config, _KV_HEADS) or heads
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        kv_heads = 1
    return 2 * _number(config, _LAYERS) * kv_heads * head_dim * size


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    return 0
