"""Llama, Mistral, Qwen 2 and Qwen 3: rotary positions, RMS norms, a gated MLP."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.fields import Config, NamedWeights, Source, activation, end_ids, field
from trireme.llm.models.rope import read_rope
from trireme.llm.models.spec import DecoderSpec

_QWEN = {"max_position_embeddings": 32768, "bos_token_id": None, "eos_token_id": None}
_MISTRAL = {"max_position_embeddings": 131072, "num_key_value_heads": 8}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "MistralForCausalLM": {**_MISTRAL, "sliding_window": 4096},
    "MixtralForCausalLM": {**_MISTRAL, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "Qwen2ForCausalLM": _QWEN,
    "Qwen3ForCausalLM": {**_QWEN, "head_dim": 128},
    "Qwen2MoeForCausalLM": _QWEN,
    "Qwen3MoeForCausalLM": {**_QWEN, "num_key_value_heads": 4},
}
"""What an architecture assumes where config.json does not say."""


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    architecture = config["architectures"][0]
    config = {**_DEFAULTS.get(architecture, {}), **config}
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_size = field(config, "head_dim", hidden // heads)
    window, windowed = windows(config)
    return DecoderSpec(
        architecture=architecture,
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        layer_count=config["num_hidden_layers"],
        head_count=heads,
        kv_head_count=field(config, "num_key_value_heads", heads),
        head_size=head_size,
        mlp_size=config["intermediate_size"],
        max_positions=field(config, "max_position_embeddings", 2048),
        norm_eps=field(config, "rms_norm_eps", 1e-6),
        activation=activation(field(config, "hidden_act", "silu")),
        rope=read_rope(config, head_size),
        qk_norm="rms" if architecture.startswith("Qwen3") else "",
        window_size=window,
        windowed_layers=windowed,
        is_tied=field(config, "tie_word_embeddings", False),
        bos_id=config.get("bos_token_id", 1),
        eos_ids=end_ids(config, 2),
    )


def windows(config: Config) -> tuple[int, tuple[int, ...]]:
    """The size of the window, and which layers have it."""
    architecture, size = config["architectures"][0], config.get("sliding_window") or 0
    if architecture.startswith(("Mistral", "Mixtral")):
        return size, ()
    if not architecture.startswith("Qwen") or not size or not config.get("use_sliding_window"):
        return 0, ()
    layers, limit = range(config["num_hidden_layers"]), field(config, "max_window_layers", 28)
    if config.get("layer_types"):
        chosen = [layer for layer in layers if config["layer_types"][layer] == "sliding_attention"]
    elif architecture == "Qwen3MoeForCausalLM":
        chosen = list(layers)
    elif architecture == "Qwen2MoeForCausalLM":
        chosen = [layer for layer in layers if layer % 2 == 0 and layer < limit]
    else:
        chosen = [layer for layer in layers if layer >= limit]
    return (size, tuple(chosen)) if chosen else (0, ())


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    yield from source.module("embed", "model.embed_tokens")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"model.layers.{layer}"
        yield from attention(source, target, origin)
        yield from source.module(f"{target}.up", f"{origin}.mlp.gate_proj", f"{origin}.mlp.up_proj")
        yield from source.module(f"{target}.down", f"{origin}.mlp.down_proj")
    yield from source.module("norm", "model.norm")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")


def attention(source: Source, target: str, origin: str) -> NamedWeights:
    """Both norms and the attention of a layer, as all models of this kind call them."""
    own = f"{origin}.self_attn"
    yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
    yield from source.module(f"{target}.qkv", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj")
    yield from source.module_if_present(f"{target}.q_norm", f"{own}.q_norm")
    yield from source.module_if_present(f"{target}.k_norm", f"{own}.k_norm")
    yield from source.module(f"{target}.o", f"{own}.o_proj")
    yield from source.module(f"{target}.mlp_norm", f"{origin}.post_attention_layernorm")
