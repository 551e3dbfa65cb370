"""GPT-2: learned positions, and matrices that were saved the other way round."""

from __future__ import annotations

from collections.abc import Callable, Container

from trireme.llm.models.checkpoint import StoredWeight, transpose
from trireme.llm.models.fields import Config, NamedWeights, Source, UnsupportedModelError, activation, end_ids, field
from trireme.llm.models.spec import DecoderSpec


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    if config.get("scale_attn_by_inverse_layer_idx"):
        raise UnsupportedModelError("GPT-2 with attention scaled by the layer's number is not known here")
    heads, hidden = config["n_head"], config["n_embd"]
    return DecoderSpec(
        architecture=config["architectures"][0],
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        layer_count=config["n_layer"],
        head_count=heads,
        kv_head_count=heads,
        head_size=hidden // heads,
        mlp_size=field(config, "n_inner", 4 * hidden),
        max_positions=field(config, "n_positions", 1024),
        norm="layer",
        norm_eps=field(config, "layer_norm_epsilon", 1e-5),
        activation=activation(field(config, "activation_function", "gelu_new")),
        is_gated=False,
        attention_scale=0.0 if field(config, "scale_attn_weights", True) else 1.0,
        is_tied=field(config, "tie_word_embeddings", True),
        bos_id=config.get("bos_token_id", 50256),
        eos_ids=end_ids(config, 50256),
    )


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    prefix = "transformer." if "transformer.wte.weight" in names else ""
    yield from source.module("embed", f"{prefix}wte")
    yield from source.module("positions", f"{prefix}wpe")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"{prefix}h.{layer}"
        yield from source.module(f"{target}.attention_norm", f"{origin}.ln_1")
        yield from _turned(source, f"{target}.qkv", f"{origin}.attn.c_attn")
        yield from _turned(source, f"{target}.o", f"{origin}.attn.c_proj")
        yield from source.module(f"{target}.mlp_norm", f"{origin}.ln_2")
        yield from _turned(source, f"{target}.up", f"{origin}.mlp.c_fc")
        yield from _turned(source, f"{target}.down", f"{origin}.mlp.c_proj")
    yield from source.module("norm", f"{prefix}ln_f")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")


def _turned(source: Source, target: str, origin: str) -> NamedWeights:
    """A module whose matrix is `[in, out]`."""
    for name, weight in source.module(target, origin):
        yield name, transpose(weight) if name.endswith(".weight") else weight
