"""The beginning of what a recorded call held and was answered, to be looked at: small however large the call is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from trireme.core.datatype import Parameter
from trireme.core.tensor import Tensor

SIDE_BYTES: Final = 8 << 10
"""What an excerpt takes for all inputs together, for all outputs, and for the parameters; more or less."""
_ENTRY_BYTES: Final = 128
"""What a tensor or a parameter takes besides its name and data."""
_MOST_TEXT: Final = 256
_MOST_DIMS: Final = 16


class RecordingCall(Protocol):
    """A call that is being recorded."""

    def excerpt(self) -> CallExcerpt:
        """What is to be seen of the call; responses that are still to come are added to the same object."""


@dataclass(frozen=True, slots=True)
class TensorExcerpt:
    """A tensor and the first bytes of its data."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size_bytes: int
    """Of the whole data."""
    data: bytes


@dataclass(slots=True)
class CallExcerpt:
    """One call. Used on the event loop's thread."""

    inputs: tuple[TensorExcerpt, ...]
    parameters: dict[str, Parameter]
    note: str = ""
    """Why the inputs are without data, where they are."""
    responses: list[tuple[TensorExcerpt, ...]] = field(default_factory=list)
    """The outputs of the first ones."""
    response_count: int = 0
    """All that there were, errors aside."""
    _room_bytes: int = SIDE_BYTES

    def add_response(self, outputs: Iterable[Tensor]) -> None:
        """One more response is on its way."""
        self.response_count += 1
        if self._room_bytes > 0:
            kept = begin_of_tensors(outputs, self._room_bytes)
            self._room_bytes -= _ENTRY_BYTES + sum(map(_size, kept))
            self.responses.append(kept)


def begin_of_tensors(tensors: Iterable[Tensor], room_bytes: int = SIDE_BYTES) -> tuple[TensorExcerpt, ...]:
    """As many of the tensors, and of the last one as much, as there is room for."""
    kept = []
    for tensor in tensors:
        if room_bytes <= 0:
            break
        data = bytes(memoryview(tensor.data)[:room_bytes])
        shape = tuple(tensor.shape[:_MOST_DIMS])
        kept.append(TensorExcerpt(tensor.name[:_MOST_TEXT], tensor.datatype, shape, len(tensor.data), data))
        room_bytes -= _size(kept[-1])
    return tuple(kept)


def begin_of_parameters(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The first of them, texts cut."""
    kept: dict[str, Parameter] = {}
    for name, value in parameters.items():
        if len(kept) * (_ENTRY_BYTES + 2 * _MOST_TEXT) >= SIDE_BYTES:
            break
        kept[name[:_MOST_TEXT]] = value[:_MOST_TEXT] if isinstance(value, str) else value
    return kept


def _size(tensor: TensorExcerpt) -> int:
    return _ENTRY_BYTES + len(tensor.name) + len(tensor.data)
