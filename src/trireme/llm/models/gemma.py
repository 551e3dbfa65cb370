"""Gemma 1, 2 and 3 (text): scaled embeddings, norms around attention and MLP, windows in most layers."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.fields import Config, NamedWeights, Source, UnsupportedModelError, activation, end_ids, field
from trireme.llm.models.rope import read_rope
from trireme.llm.models.spec import DecoderSpec, RopeSpec

_GEMMA_1 = "GemmaForCausalLM"
_GEMMA_2 = "Gemma2ForCausalLM"
_DEFAULT_SIZES = {
    _GEMMA_1: {"vocab_size": 256000, "num_attention_heads": 16, "num_key_value_heads": 16},
    _GEMMA_2: {"vocab_size": 256000, "num_attention_heads": 8, "num_key_value_heads": 4},
}
_DEFAULT_SIZES_3 = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4}


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    architecture = config["architectures"][0]
    is_third = architecture not in (_GEMMA_1, _GEMMA_2)
    config = {**_DEFAULT_SIZES.get(architecture, _DEFAULT_SIZES_3), **config, **(config.get("text_config") or {})}
    if config.get("use_bidirectional_attention"):
        raise UnsupportedModelError(f"{architecture} with attention in both directions does not write text")
    head_size = field(config, "head_dim", 256)
    window, windowed = (0, ()) if architecture == _GEMMA_1 else _windows(config, 6 if is_third else 2)
    rope, local_rope = _ropes(config, head_size, is_third)
    is_first = architecture == _GEMMA_1
    return DecoderSpec(
        architecture=architecture,
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        layer_count=config["num_hidden_layers"],
        head_count=config["num_attention_heads"],
        kv_head_count=config["num_key_value_heads"],
        head_size=head_size,
        mlp_size=config["intermediate_size"],
        max_positions=field(config, "max_position_embeddings", 131072 if is_third else 8192),
        norm_eps=field(config, "rms_norm_eps", 1e-6),
        norm_weight_offset=1.0,
        activation=activation(_activation_name(config)),
        rope=rope,
        local_rope=local_rope,
        embedding_scale=config["hidden_size"] ** 0.5,
        qk_norm="rms" if is_third else "",
        attention_scale=0.0 if is_first else field(config, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_softcap(config, "attn_logit_softcapping", architecture, 50.0),
        logit_softcap=_softcap(config, "final_logit_softcapping", architecture, 30.0),
        window_size=window,
        windowed_layers=windowed,
        is_tied=field(config, "tie_word_embeddings", True),
        bos_id=config.get("bos_token_id", 2),
        eos_ids=end_ids(config, 1),
    )


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    prefix = _prefix(names)
    yield from source.module("embed", f"{prefix}.embed_tokens")
    for layer in range(spec.layer_count):
        yield from _layer(source, f"layers.{layer}", f"{prefix}.layers.{layer}", spec.architecture == _GEMMA_1)
    yield from source.module("norm", f"{prefix}.norm")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")


def _layer(source: Source, target: str, origin: str, is_first: bool) -> NamedWeights:
    own = f"{origin}.self_attn"
    yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
    yield from source.module(f"{target}.qkv", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj")
    yield from source.module_if_present(f"{target}.q_norm", f"{own}.q_norm")
    yield from source.module_if_present(f"{target}.k_norm", f"{own}.k_norm")
    yield from source.module(f"{target}.o", f"{own}.o_proj")
    if is_first:
        yield from source.module(f"{target}.mlp_norm", f"{origin}.post_attention_layernorm")
    else:
        yield from source.module(f"{target}.after_attention_norm", f"{origin}.post_attention_layernorm")
        yield from source.module(f"{target}.mlp_norm", f"{origin}.pre_feedforward_layernorm")
        yield from source.module(f"{target}.after_mlp_norm", f"{origin}.post_feedforward_layernorm")
    yield from source.module(f"{target}.up", f"{origin}.mlp.gate_proj", f"{origin}.mlp.up_proj")
    yield from source.module(f"{target}.down", f"{origin}.mlp.down_proj")


def _prefix(names: Container[str]) -> str:
    """Where the text model is: checkpoints that read images too have it one level further down."""
    for prefix in ("language_model.model", "model.language_model"):
        if f"{prefix}.embed_tokens.weight" in names:
            return prefix
    return "model"


def _activation_name(config: Config) -> str:
    """The first releases say "gelu" and mean its approximation."""
    name = str(config.get("hidden_activation") or config.get("hidden_act") or "gelu_pytorch_tanh")
    return "gelu_pytorch_tanh" if name == "gelu" else name


def _softcap(config: Config, name: str, architecture: str, default: float) -> float:
    if architecture == _GEMMA_1:
        return 0.0
    return float(config.get(name, default if architecture == _GEMMA_2 else None) or 0.0)


def _windows(config: Config, default_pattern: int) -> tuple[int, tuple[int, ...]]:
    size = config.get("sliding_window", 4096)
    if not size:
        return 0, ()
    kinds: Any = config.get("layer_types")
    pattern = field(config, "sliding_window_pattern", default_pattern)
    layers = range(config["num_hidden_layers"])
    chosen = [layer for layer in layers if (kinds[layer] == "sliding_attention" if kinds else (layer + 1) % pattern)]
    return (size, tuple(chosen)) if chosen else (0, ())


def _ropes(config: Config, head_size: int, is_third: bool) -> tuple[RopeSpec, RopeSpec | None]:
    if not is_third:
        return read_rope(config, head_size), None
    rope = read_rope(config, head_size, theta=1e6, kind_of_layer="full_attention")
    settings = config.get("rope_parameters") or {}
    local = {
        "rope_parameters": settings.get("sliding_attention") or {},
        "rope_theta": field(config, "rope_local_base_freq", 10000.0),
    }
    return rope, read_rope(local, head_size)
