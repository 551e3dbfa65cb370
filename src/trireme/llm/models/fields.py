"""What the families' files have in common: fields of config.json, and tensors under other names."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import StoredWeight, Weight, join
from trireme.llm.models.quantized import QuantizedWeight
from trireme.llm.models.spec import Activation, DecoderSpec

Config = Mapping[str, Any]
NamedWeights = Iterator[tuple[str, StoredWeight]]

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
}


class UnsupportedModelError(Exception):
    """A model that cannot be computed here; the text names what it has and what is known."""


def field(config: Config, name: str, default: Any) -> Any:
    """A field, or the default where it is absent or null."""
    value = config.get(name)
    return default if value is None else value


def activation(name: str) -> Activation:
    """The function of an MLP by the name that transformers gives it."""
    if name not in _ACTIVATIONS:
        raise UnsupportedModelError(
            f"the activation '{name}' is not known here; known are {', '.join(sorted(_ACTIVATIONS))}"
        )
    return _ACTIVATIONS[name]


def end_ids(config: Config, default: int | None = None) -> tuple[int, ...]:
    """The tokens that end a text; one, several or none."""
    value = config.get("eos_token_id", default)
    if value is None:
        return ()
    return tuple(int(token) for token in value) if isinstance(value, list) else (int(value),)


def by_kind(weight: StoredWeight, spec: DecoderSpec) -> StoredWeight:
    """Rows of queries, keys and values that are mixed group by group, sorted into all queries, all keys, all values."""
    if isinstance(weight, QuantizedWeight):
        numbers = by_kind(Weight(np.arange(weight.shape[0]), "I64"), spec)
        assert isinstance(numbers, Weight)
        return weight.rows(numbers.array)
    rest = weight.array.shape[1:]
    groups = weight.array.reshape(spec.kv_head_count, spec.group_size + 2, spec.head_size, *rest)
    parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
    return Weight(np.concatenate([part.reshape(-1, *rest) for part in parts]), weight.dtype)


@dataclass(frozen=True, slots=True)
class Source:
    """The tensors of a checkpoint."""

    read: Callable[[str], StoredWeight]
    names: Container[str]

    def module(self, target: str, *sources: str) -> NamedWeights:
        """Weight and, where there is one, bias of a module under its canonical name; several are joined by rows."""
        for kind in ("weight", "bias"):
            wanted = [f"{source}.{kind}" for source in sources]
            if kind == "weight" or all(name in self.names for name in wanted):
                yield f"{target}.{kind}", join([self.read(name) for name in wanted])

    def mixed_qkv(self, target: str, source: str, spec: DecoderSpec) -> NamedWeights:
        """The joined module of queries, keys and values, sorted by kind."""
        for name, weight in self.module(target, source):
            yield name, by_kind(weight, spec)

    def module_if_present(self, target: str, source: str) -> NamedWeights:
        """The same for a module that not every checkpoint of the family has."""
        if f"{source}.weight" in self.names:
            yield from self.module(target, source)
