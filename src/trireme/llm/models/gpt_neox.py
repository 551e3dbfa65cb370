"""GPT-NeoX and Pythia: attention and MLP side by side or one after the other, part of each head rotated."""

from __future__ import annotations

from collections.abc import Callable, Container

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.fields import Config, NamedWeights, Source, activation, end_ids, field
from trireme.llm.models.rope import read_rope
from trireme.llm.models.spec import DecoderSpec


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    theta, share = field(config, "rotary_emb_base", 10000.0), field(config, "rotary_pct", 0.25)
    return DecoderSpec(
        architecture=config["architectures"][0],
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        layer_count=config["num_hidden_layers"],
        head_count=heads,
        kv_head_count=heads,
        head_size=hidden // heads,
        mlp_size=config["intermediate_size"],
        max_positions=field(config, "max_position_embeddings", 2048),
        norm="layer",
        norm_eps=field(config, "layer_norm_eps", 1e-5),
        activation=activation(field(config, "hidden_act", "gelu")),
        is_gated=False,
        rope=read_rope(config, hidden // heads, theta=theta, rotary_share=share),
        is_parallel=field(config, "use_parallel_residual", True),
        is_tied=field(config, "tie_word_embeddings", False),
        bos_id=config.get("bos_token_id", 0),
        eos_ids=end_ids(config, 2),
    )


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    yield from source.module("embed", "gpt_neox.embed_in")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"gpt_neox.layers.{layer}"
        yield from source.module(f"{target}.attention_norm", f"{origin}.input_layernorm")
        yield from source.mixed_qkv(f"{target}.qkv", f"{origin}.attention.query_key_value", spec)
        yield from source.module(f"{target}.o", f"{origin}.attention.dense")
        yield from source.module(f"{target}.mlp_norm", f"{origin}.post_attention_layernorm")
        yield from source.module(f"{target}.up", f"{origin}.mlp.dense_h_to_4h")
        yield from source.module(f"{target}.down", f"{origin}.mlp.dense_4h_to_h")
    yield from source.module("norm", "gpt_neox.final_layer_norm")
    if not spec.is_tied:
        yield from source.module("head", "embed_out" if "embed_out.weight" in names else "lm_head")
