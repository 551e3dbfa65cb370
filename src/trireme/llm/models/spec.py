"""What a decoder-only language model is made of, whoever published it: every executor builds its steps from this value.

The weights come under one set of names too, whatever the checkpoint calls them. Matrices are `[out, in]`:

    embed.weight                      [vocab, hidden]
    positions.weight                  [positions, hidden], where positions are learned
    embed_norm.weight/.bias           where embeddings are normalised
    embed_in.weight                   [hidden, embedding size], where embeddings are narrower than the model
    layers.<i>.attention_norm.*       before attention
    layers.<i>.qkv.weight/.bias       [(heads + 2 * key/value heads) * head size, hidden]: all queries, keys, values
    layers.<i>.q_norm.*, .k_norm.*    of one head, where queries and keys are normalised
    layers.<i>.o.weight/.bias         [hidden, heads * head size]
    layers.<i>.after_attention_norm.* where the output of attention is normalised before it is added
    layers.<i>.mlp_norm.*             before the MLP; absent where it shares attention's
    layers.<i>.up.weight/.bias        [mlp, hidden], or [2 * mlp, hidden] where gated: the gate's rows first
    layers.<i>.down.weight/.bias      [hidden, mlp]
    layers.<i>.after_mlp_norm.*       where the output of the MLP is normalised before it is added
    layers.<i>.router.weight          [experts, hidden], where there are experts
    layers.<i>.experts.up.weight      [experts, 2 * mlp, hidden]
    layers.<i>.experts.down.weight    [experts, hidden, mlp]
    layers.<i>.shared.up/.down.weight the expert that every token passes, and .shared_gate.weight [1, hidden]
    norm.weight/.bias                 after the last layer
    head_in.weight                    [embedding size, hidden], where embeddings are narrower than the model
    head.weight/.bias                 [vocab, hidden]; absent where it is the embedding
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary positions."""

    theta: float
    rotary_size: int
    """How many of a head's elements are rotated, from its beginning."""
    inverse_frequencies: tuple[float, ...]
    """`rotary_size / 2` of them, scaled as the checkpoint asks for."""
    attention_scale: float = 1.0
    """What cosines and sines are multiplied with (yarn, longrope)."""
    long_inverse_frequencies: tuple[float, ...] = ()
    """What sequences with more than `short_positions` tokens use in place of `inverse_frequencies` (longrope)."""
    short_positions: int = 0
    """The longest sequence that `inverse_frequencies` are for, where there are other ones for longer sequences."""
    is_interleaved: bool = False
    """Whether neighbours are rotated together, instead of an element and the one half the size further on."""


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """A mixture of experts in place of the MLP."""

    count: int
    chosen: int
    """How many experts each token passes."""
    mlp_size: int
    normalises_chosen: bool
    """Whether the weights of the chosen ones are made to sum up to one."""
    shared_mlp_size: int = 0
    """Of the expert that every token passes; 0: there is none."""
    plain_layers: tuple[int, ...] = ()
    """Layers that have an ordinary MLP, of the model's `mlp_size`."""


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """One architecture with its sizes."""

    architecture: str
    """The class that the checkpoint's config.json names."""
    vocab_size: int
    hidden_size: int
    layer_count: int
    head_count: int
    kv_head_count: int
    head_size: int
    mlp_size: int
    max_positions: int
    """How many tokens a sequence may have."""
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-6
    norm_weight_offset: float = 0.0
    """Added to the weights of RMS norms (gemma: 1)."""
    activation: Activation = "silu"
    is_gated: bool = True
    """Whether the MLP multiplies its activated half with the other one."""
    rope: RopeSpec | None = None
    local_rope: RopeSpec | None = None
    """What layers with a window use in place of `rope` (gemma 3)."""
    position_offset: int = 0
    """Added to positions before they are looked up, where they are learned (opt: 2)."""
    has_alibi: bool = False
    alibi_bias_dtype_scale: float = 1.0
    """What alibi's slopes are multiplied with (falcon divides scores and biases together)."""
    embedding_size: int = 0
    """Of token embeddings, where they are narrower than the model; 0: they are as wide."""
    embedding_scale: float = 1.0
    is_parallel: bool = False
    """Whether attention and MLP both start from the layer's input and are added together."""
    norms_before: bool = True
    """False: norms stand after the sums (opt-350m)."""
    qk_norm: Literal["", "rms", "layer"] = ""
    attention_scale: float = 0.0
    """What scores are multiplied with; 0: one over the root of the head's size."""
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    logit_scale: float = 1.0
    window_size: int = 0
    """How many tokens attention sees in layers that have a window, the token itself being the last; 0: all."""
    windowed_layers: tuple[int, ...] = ()
    """Which layers have the window; empty while `window_size` is set: all of them."""
    experts: ExpertSpec | None = None
    is_tied: bool = False
    """Whether the head is the embedding."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    @property
    def group_size(self) -> int:
        """How many query heads share one key/value head."""
        return self.head_count // self.kv_head_count

    @property
    def qkv_size(self) -> int:
        """Rows of the joined matrix of queries, keys and values."""
        return (self.head_count + 2 * self.kv_head_count) * self.head_size

    @property
    def score_scale(self) -> float:
        """What scores are multiplied with."""
        return self.attention_scale or self.head_size**-0.5

    def has_experts(self, layer: int) -> bool:
        """Whether the layer has a mixture of experts in place of an MLP."""
        return self.experts is not None and layer not in self.experts.plain_layers

    def window_of(self, layer: int) -> int:
        """How many tokens back the layer looks; 0: all."""
        return self.window_size if not self.windowed_layers or layer in self.windowed_layers else 0

    def rope_of(self, layer: int) -> RopeSpec | None:
        """The rotation of the layer's queries and keys."""
        return self.local_rope if self.local_rope is not None and self.window_of(layer) else self.rope


def wrong_sizes(spec: DecoderSpec) -> list[str]:
    """Sizes that no model has, each with its value; none where all of them can be."""
    sizes = {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "layers": spec.layer_count,
        "attention heads": spec.head_count,
        "key/value heads": spec.kv_head_count,
        "head size": spec.head_size,
        "MLP size": spec.mlp_size,
        "positions": spec.max_positions,
    }
    found = [f"{value!r} as {name}" for name, value in sizes.items() if type(value) is not int or value < 1]
    if not found and spec.head_count % spec.kv_head_count:
        found = [f"{spec.head_count} attention heads, which {spec.kv_head_count} key/value heads cannot share"]
    return found if isinstance(spec.norm_eps, int | float) else [*found, f"{spec.norm_eps!r} as the norms' epsilon"]


def has_tensor(name: str, spec: DecoderSpec) -> bool:
    """Whether a model may have a canonical tensor of that name."""
    module, _, _ = name.rpartition(".")
    if module.startswith("layers."):
        _, number, *rest = module.split(".", 2)
        return number.isdecimal() and int(number) < spec.layer_count and "".join(rest) in _shapes(spec)
    return module in _shapes(spec)


def shape_of(name: str, spec: DecoderSpec) -> tuple[int, ...]:
    """The shape that a canonical tensor has to have; a KeyError where there is none of that name."""
    module, _, kind = name.rpartition(".")
    if module.startswith("layers."):
        module = module.split(".", 2)[2]
    shape = _shapes(spec)[module]
    return shape if kind == "weight" else shape[:1]


@cache
def _shapes(spec: DecoderSpec) -> Mapping[str, tuple[int, ...]]:
    hidden, mlp, halves = spec.hidden_size, spec.mlp_size, 2 if spec.is_gated else 1
    embedding = spec.embedding_size or hidden
    norms = ("embed_norm", "attention_norm", "after_attention_norm", "mlp_norm", "after_mlp_norm", "norm")
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(norms, (hidden,)),
        "q_norm": (spec.head_size,),
        "k_norm": (spec.head_size,),
        "embed": (spec.vocab_size, embedding),
        "embed_in": (hidden, embedding),
        "positions": (spec.max_positions + spec.position_offset, hidden),
        "qkv": (spec.qkv_size, hidden),
        "o": (hidden, spec.head_count * spec.head_size),
        "up": (halves * mlp, hidden),
        "down": (hidden, mlp),
        "head_in": (embedding, hidden),
        "head": (spec.vocab_size, embedding),
    }
    if spec.experts is not None:
        count, own, shared = spec.experts.count, spec.experts.mlp_size, spec.experts.shared_mlp_size
        shapes["router"] = (count, hidden)
        shapes["experts.up"], shapes["experts.down"] = (count, 2 * own, hidden), (count, hidden, own)
        shapes["shared.up"], shapes["shared.down"] = (2 * shared, hidden), (hidden, shared)
        shapes["shared_gate"] = (1, hidden)
    return shapes
