"""One request and its answers, whatever the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trireme.core.datatype import Parameter
from trireme.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class InferCall:
    """What is asked of a model."""

    model: str
    version: str
    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    """Empty: all of them."""
    class_counts: Mapping[str, int] = field(default_factory=dict)
    """Outputs of which the best classes are wanted in place of the tensor; they are among `outputs`."""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class InferAnswer:
    """One response."""

    model: str
    version: str
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
