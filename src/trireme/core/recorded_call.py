"""A client's call of a model as a recording keeps it: the request, and what was answered when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trireme.core.datatype import Parameter
from trireme.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """One response of the answer."""

    after_ns: int
    """Since the call was begun."""
    outputs: Sequence[Tensor] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    error: str | None = None
    error_kind: str = ""
    """The error's code in words, such as `Invalid argument`."""
    is_empty: bool = False
    """A mark alone, which ends the answer of a decoupled model."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One request and its answer; `at_ns` counts from the beginning of the recording."""

    at_ns: int
    model: str
    version: str = ""
    """As asked for; "" is the server's choice."""
    served_version: str = ""
    protocol: str = ""
    """`http` or `grpc`, "" where it is not known."""
    request_id: str = ""
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[str] = ()
    """Those asked for; empty: all."""
    class_counts: Mapping[str, int] = field(default_factory=dict)
    """Outputs of which the best classes are wanted in place of the tensor."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    correlation_id: int | str = 0
    is_start: bool = False
    is_end: bool = False
    priority: int = 0
    timeout_us: int = 0
    shared_memory: Sequence[str] = ()
    """Inputs and outputs that lay in shared memory; their data was copied into the recording."""
    responses: Sequence[RecordedResponse] = ()
    is_finished: bool = True
    """Whether the last response was seen before the recording ended."""
    is_cut: bool = False
    """Whether responses beyond the size that a call may have were left out."""
    unplayable: str = ""
    """Why it cannot be sent again, "" where it can; its inputs are then without data."""
    has_answer: bool = True
    """Whether answers were recorded at all."""

    @property
    def error(self) -> str | None:
        """The error of the answer, where it had one."""
        return next((response.error for response in self.responses if response.error is not None), None)

    @property
    def answer_ns(self) -> int | None:
        """From the beginning of the call to its last response."""
        return self.responses[-1].after_ns if self.responses and self.is_finished else None
