"""Mixtral and the mixtures of Qwen 2 and 3: Llama's attention, and experts in place of the MLP."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

from trireme.llm.models import llama
from trireme.llm.models.checkpoint import StoredWeight, join, stack
from trireme.llm.models.fields import Config, NamedWeights, Source, field
from trireme.llm.models.spec import DecoderSpec, ExpertSpec

_MIXTRAL = "MixtralForCausalLM"


def spec(config: Config) -> DecoderSpec:
    """The architecture with the sizes of config.json."""
    architecture = config["architectures"][0]
    if architecture == _MIXTRAL:
        return replace(llama.spec(config), experts=_mixtral_experts(config))
    is_second = architecture == "Qwen2MoeForCausalLM"
    experts = ExpertSpec(
        count=field(config, "num_experts", config.get("num_local_experts") or (60 if is_second else 128)),
        chosen=field(config, "num_experts_per_tok", 4 if is_second else 8),
        mlp_size=field(config, "moe_intermediate_size", 1408 if is_second else 768),
        normalises_chosen=field(config, "norm_topk_prob", False),
        shared_mlp_size=field(config, "shared_expert_intermediate_size", 5632) if is_second else 0,
        plain_layers=_plain_layers(config),
    )
    return replace(llama.spec(config), experts=experts)


def _mixtral_experts(config: Config) -> ExpertSpec:
    return ExpertSpec(
        count=field(config, "num_local_experts", 8),
        chosen=field(config, "num_experts_per_tok", 2),
        mlp_size=config["intermediate_size"],
        normalises_chosen=True,
    )


def _plain_layers(config: Config) -> tuple[int, ...]:
    listed, step = field(config, "mlp_only_layers", []), field(config, "decoder_sparse_step", 1)
    return tuple(layer for layer in range(config["num_hidden_layers"]) if layer in listed or (layer + 1) % step)


def weights(
    spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
) -> NamedWeights:
    """The canonical tensors, one after another."""
    source = Source(read, names)
    yield from source.module("embed", "model.embed_tokens")
    for layer in range(spec.layer_count):
        target, origin = f"layers.{layer}", f"model.layers.{layer}"
        yield from llama.attention(source, target, origin)
        if spec.has_experts(layer):
            yield from _experts(source, spec, target, origin)
        else:
            yield from source.module(f"{target}.up", f"{origin}.mlp.gate_proj", f"{origin}.mlp.up_proj")
            yield from source.module(f"{target}.down", f"{origin}.mlp.down_proj")
    yield from source.module("norm", "model.norm")
    if not spec.is_tied:
        yield from source.module("head", "lm_head")


def _experts(source: Source, spec: DecoderSpec, target: str, origin: str) -> NamedWeights:
    assert spec.experts is not None
    own = f"{origin}.block_sparse_moe" if f"{origin}.block_sparse_moe.gate.weight" in source.names else f"{origin}.mlp"
    yield from source.module(f"{target}.router", f"{own}.gate")
    if f"{own}.experts.gate_up_proj" in source.names:
        yield f"{target}.experts.up.weight", source.read(f"{own}.experts.gate_up_proj")
        yield f"{target}.experts.down.weight", source.read(f"{own}.experts.down_proj")
    else:
        yield from _single_experts(source, spec.experts.count, target, f"{own}.experts")
    if spec.experts.shared_mlp_size:
        shared = f"{own}.shared_expert"
        yield from source.module(f"{target}.shared.up", f"{shared}.gate_proj", f"{shared}.up_proj")
        yield from source.module(f"{target}.shared.down", f"{shared}.down_proj")
        yield from source.module(f"{target}.shared_gate", f"{own}.shared_expert_gate")


def _single_experts(source: Source, count: int, target: str, own: str) -> NamedWeights:
    """Experts that were saved one by one; Mixtral calls gate, up and down w1, w3 and w2."""
    is_numbered = f"{own}.0.w1.weight" in source.names
    gate, up, down = ("w1", "w3", "w2") if is_numbered else ("gate_proj", "up_proj", "down_proj")

    def read(expert: int, *parts: str) -> StoredWeight:
        return join([source.read(f"{own}.{expert}.{part}.weight") for part in parts])

    yield f"{target}.experts.up.weight", stack([read(expert, gate, up) for expert in range(count)])
    yield f"{target}.experts.down.weight", stack([read(expert, down) for expert in range(count)])
