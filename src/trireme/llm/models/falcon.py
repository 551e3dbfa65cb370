"""Falcon in its three forms: many key/value heads with alibi (rw), one of them (7B), some of them (40B, 180B, 11B)."""

from __future__ import annotations

from collections.abc import Callable, Container

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.fields import Config, NamedWeights, Source, activation, end_ids, field
from trireme.llm.models.rope import read_rope
from trireme.llm.models.spec import DecoderSpec


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_size, has_alibi = hidden // heads, field(config, "alibi", False)
    is_new = field(config, "new_decoder_architecture", False)
    return DecoderSpec(
        architecture=config["architectures"][0],
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        layer_count=config["num_hidden_layers"],
        head_count=heads,
        kv_head_count=_kv_heads(config, is_new),
        head_size=head_size,
        mlp_size=field(config, "ffn_hidden_size", 4 * hidden),
        max_positions=field(config, "max_position_embeddings", 2048),
        norm="layer",
        norm_eps=field(config, "layer_norm_epsilon", 1e-5),
        activation=activation(field(config, "activation", "gelu")),
        is_gated=False,
        rope=None if has_alibi else read_rope(config, head_size),
        has_alibi=has_alibi,
        alibi_bias_dtype_scale=head_size**-0.5 if has_alibi else 1.0,
        is_parallel=is_new or field(config, "parallel_attn", True),
        is_tied=field(config, "tie_word_embeddings", True),
        bos_id=config.get("bos_token_id", 11),
        eos_ids=end_ids(config, 11),
    )


def _kv_heads(config: Config, is_new: bool) -> int:
    if is_new:
        return int(field(config, "num_kv_heads", config["num_attention_heads"]))
    return 1 if field(config, "multi_query", True) else int(config["num_attention_heads"])


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    yield from source.module("embed", "transformer.word_embeddings")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"transformer.h.{layer}"
        yield from _norms(source, target, origin)
        yield from source.mixed_qkv(f"{target}.qkv", f"{origin}.self_attention.query_key_value", spec)
        yield from source.module(f"{target}.o", f"{origin}.self_attention.dense")
        yield from source.module(f"{target}.up", f"{origin}.mlp.dense_h_to_4h")
        yield from source.module(f"{target}.down", f"{origin}.mlp.dense_4h_to_h")
    yield from source.module("norm", "transformer.ln_f")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")


def _norms(source: Source, target: str, origin: str) -> NamedWeights:
    """One for both halves of the layer, one for each, or one before each."""
    if f"{origin}.ln_attn.weight" in source.names:
        yield from source.module(f"{target}.attention_norm", f"{origin}.ln_attn")
        yield from source.module(f"{target}.mlp_norm", f"{origin}.ln_mlp")
    else:
        yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
        yield from source.module_if_present(f"{target}.mlp_norm", f"{origin}.post_attention_layernorm")
