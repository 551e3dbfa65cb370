"""OPT and Galactica: learned positions; the 350m model has narrower embeddings, and norms behind the sums."""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np

from trireme.llm.models.checkpoint import StoredWeight, Weight
from trireme.llm.models.fields import Config, NamedWeights, Source, activation, end_ids, field
from trireme.llm.models.spec import DecoderSpec


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    embedding = field(config, "word_embed_proj_dim", hidden)
    return DecoderSpec(
        architecture=config["architectures"][0],
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        layer_count=config["num_hidden_layers"],
        head_count=heads,
        kv_head_count=heads,
        head_size=hidden // heads,
        mlp_size=config["ffn_dim"],
        max_positions=field(config, "max_position_embeddings", 2048),
        norm="layer",
        norm_eps=1e-5,
        norms_before=field(config, "do_layer_norm_before", True),
        activation=activation(field(config, "activation_function", "relu")),
        is_gated=False,
        position_offset=2,
        embedding_size=0 if embedding == hidden else embedding,
        is_tied=field(config, "tie_word_embeddings", True),
        bos_id=config.get("bos_token_id", 2),
        eos_ids=end_ids(config, 2),
    )


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    prefix = "model.decoder" if "model.decoder.embed_tokens.weight" in names else "decoder"
    has_weights = field(config, "layer_norm_elementwise_affine", True)
    yield from source.module("embed", f"{prefix}.embed_tokens")
    yield from source.module("positions", f"{prefix}.embed_positions")
    yield from source.module_if_present("embed_in", f"{prefix}.project_in")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"{prefix}.layers.{layer}"
        own = f"{origin}.self_attn"
        yield from _norm(source, f"{target}.attention_norm", f"{origin}.self_attn_layer_norm", spec, has_weights)
        yield from source.module(f"{target}.qkv", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj")
        yield from source.module(f"{target}.o", f"{own}.out_proj")
        yield from _norm(source, f"{target}.mlp_norm", f"{origin}.final_layer_norm", spec, has_weights)
        yield from source.module(f"{target}.up", f"{origin}.fc1")
        yield from source.module(f"{target}.down", f"{origin}.fc2")
    if spec.norms_before and not config.get("_remove_final_layer_norm"):
        yield from _norm(source, "norm", f"{prefix}.final_layer_norm", spec, has_weights)
    yield from source.module_if_present("head_in", f"{prefix}.project_out")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")


def _norm(source: Source, target: str, origin: str, spec: DecoderSpec, has_weights: bool) -> NamedWeights:
    """A norm; where the checkpoint has no weights of it, ones."""
    if has_weights:
        yield from source.module(target, origin)
    else:
        yield f"{target}.weight", Weight(np.ones(spec.hidden_size, np.float32), "F32")
