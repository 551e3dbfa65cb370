"""Persimmon: layer norms of queries and keys, a squared ReLU, half of each head rotated."""

from __future__ import annotations

from collections.abc import Callable, Container

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.fields import Config, NamedWeights, Source, activation, end_ids, field
from trireme.llm.models.rope import read_rope
from trireme.llm.models.spec import DecoderSpec


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    return DecoderSpec(
        architecture=config["architectures"][0],
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        layer_count=config["num_hidden_layers"],
        head_count=heads,
        kv_head_count=heads,
        head_size=hidden // heads,
        mlp_size=config["intermediate_size"],
        max_positions=field(config, "max_position_embeddings", 16384),
        norm="layer",
        norm_eps=field(config, "layer_norm_eps", 1e-5),
        activation=activation(field(config, "hidden_act", "relu2")),
        is_gated=False,
        rope=read_rope(config, hidden // heads, rotary_share=0.5),
        qk_norm="layer" if field(config, "qk_layernorm", True) else "",
        is_tied=field(config, "tie_word_embeddings", False),
        bos_id=config.get("bos_token_id", 1),
        eos_ids=end_ids(config, 2),
    )


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    yield from source.module("embed", "model.embed_tokens")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"model.layers.{layer}"
        yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
        yield from source.mixed_qkv(f"{target}.qkv", f"{origin}.self_attn.query_key_value", spec)
        yield from source.module_if_present(f"{target}.q_norm", f"{origin}.self_attn.q_layernorm")
        yield from source.module_if_present(f"{target}.k_norm", f"{origin}.self_attn.k_layernorm")
        yield from source.module(f"{target}.o", f"{origin}.self_attn.dense")
        yield from source.module(f"{target}.mlp_norm", f"{origin}.post_attention_layernorm")
        yield from source.module(f"{target}.up", f"{origin}.mlp.dense_h_to_4h")
        yield from source.module(f"{target}.down", f"{origin}.mlp.dense_4h_to_h")
    yield from source.module("norm", "model.final_layernorm")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")
