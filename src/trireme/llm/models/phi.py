"""Phi 1 to 2, which add attention and MLP of one norm, and Phi 3 and 4, which are Llama with joined matrices."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.fields import Config, NamedWeights, Source, activation, end_ids, field
from trireme.llm.models.rope import read_rope
from trireme.llm.models.spec import DecoderSpec


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    sizes = {
        "architecture": config["architectures"][0],
        "vocab_size": config["vocab_size"],
        "hidden_size": hidden,
        "layer_count": config["num_hidden_layers"],
        "head_count": heads,
        "kv_head_count": field(config, "num_key_value_heads", heads),
        "head_size": field(config, "head_dim", hidden // heads),
        "mlp_size": config["intermediate_size"],
        "is_tied": field(config, "tie_word_embeddings", False),
        "bos_id": config.get("bos_token_id", 1),
    }
    return _third(config, sizes) if sizes["architecture"] == "Phi3ForCausalLM" else _second(config, sizes)


def _second(config: Config, sizes: dict[str, Any]) -> DecoderSpec:
    return DecoderSpec(
        **sizes,
        max_positions=field(config, "max_position_embeddings", 2048),
        norm="layer",
        norm_eps=field(config, "layer_norm_eps", 1e-5),
        activation=activation(field(config, "hidden_act", "gelu_new")),
        is_gated=False,
        is_parallel=True,
        rope=read_rope(config, sizes["head_size"], rotary_share=0.5),
        qk_norm="layer" if config.get("qk_layernorm") else "",
        eos_ids=end_ids(config, 2),
    )


def _third(config: Config, sizes: dict[str, Any]) -> DecoderSpec:
    config = {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096, **config}
    return DecoderSpec(
        **sizes,
        max_positions=config["max_position_embeddings"],
        norm_eps=field(config, "rms_norm_eps", 1e-5),
        activation=activation(field(config, "hidden_act", "silu")),
        rope=read_rope(config, sizes["head_size"]),
        window_size=config.get("sliding_window") or 0,
        eos_ids=end_ids(config, 32000),
    )


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    is_third = spec.architecture == "Phi3ForCausalLM"
    yield from source.module("embed", "model.embed_tokens")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"model.layers.{layer}"
        yield from (_third_layer if is_third else _second_layer)(source, target, origin)
    yield from source.module("norm", "model.norm" if is_third else "model.final_layernorm")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")
    elif "lm_head.bias" in names:
        yield "head.bias", read("lm_head.bias")


def _second_layer(source: Source, target: str, origin: str) -> NamedWeights:
    own = f"{origin}.self_attn"
    yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
    yield from source.module(f"{target}.qkv", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj")
    yield from source.module_if_present(f"{target}.q_norm", f"{own}.q_layernorm")
    yield from source.module_if_present(f"{target}.k_norm", f"{own}.k_layernorm")
    yield from source.module(f"{target}.o", f"{own}.dense")
    yield from source.module(f"{target}.up", f"{origin}.mlp.fc1")
    yield from source.module(f"{target}.down", f"{origin}.mlp.fc2")


def _third_layer(source: Source, target: str, origin: str) -> NamedWeights:
    yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
    yield from source.module(f"{target}.qkv", f"{origin}.self_attn.qkv_proj")
    yield from source.module(f"{target}.o", f"{origin}.self_attn.o_proj")
    yield from source.module(f"{target}.mlp_norm", f"{origin}.post_attention_layernorm")
    yield from source.module(f"{target}.up", f"{origin}.mlp.gate_up_proj")
    yield from source.module(f"{target}.down", f"{origin}.mlp.down_proj")
