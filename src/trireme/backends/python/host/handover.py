"""Memory that one worker lent and another one is to look at: shown to it where it lies, without a copy."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel.arena import AttachedSegment, Block
from trireme.core.elements import Buffer
from trireme.core.tensor import HandedTensor

Announce = Callable[[int, int, int], None]
Forget = Callable[[int], None]


class Handover:
    """What one worker has been shown of others' memory. Their segments have negative numbers here, beside those of the
    server's own arena.

    A block stays with its worker until this one has given it back; a segment is forgotten when the worker that made
    it is gone and nobody looks at it any more.
    """

    def __init__(self, announce: Announce, forget: Forget) -> None:
        self._announce = announce
        self._forget = forget
        self._numbers: dict[weakref.ref[AttachedSegment], int] = {}
        self._next_number = -1
        self._shown: dict[tuple[int, int], Buffer] = {}  # what keeps each block lent

    def show(self, tensor: HandedTensor) -> Block | None:
        """The tensor's block as this worker is to find it; None where it has the block already."""
        origin: Any = tensor.origin
        segment, offset = origin
        number = self._numbers.get(weakref.ref(segment)) or self._introduce(segment)
        key = (number, offset)
        if key in self._shown:
            return None
        self._shown[key] = tensor.data
        return (number, offset, len(tensor.data))

    def release(self, number: int, offset: int) -> None:
        """This worker no longer looks at the block; an unknown one is ignored."""
        self._shown.pop((number, offset), None)

    def close(self) -> None:
        """This worker is gone."""
        self._shown.clear()
        self._numbers.clear()

    def _introduce(self, segment: AttachedSegment) -> int:
        assert segment.fd is not None
        number = self._next_number
        self._announce(number, segment.fd, segment.size_bytes)
        self._next_number = number - 1
        self._numbers[weakref.ref(segment, self._ended)] = number
        return number

    def _ended(self, reference: weakref.ref[AttachedSegment]) -> None:
        """May come from any thread, whichever lets go of the last tensor."""
        number = self._numbers.pop(reference, None)
        if number is not None:
            self._forget(number)
