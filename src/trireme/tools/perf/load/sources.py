"""Which request comes next: the prepared ones in turn, or the steps of sequences."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from trireme.tools.perf.load.calls import SEQUENCE_END, Call
from trireme.tools.perf.options import SequenceOptions


class RequestForm(Protocol):
    """A prepared request."""

    plain: bytes

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """The request as a part of a sequence."""


class RequestSource(Protocol):
    """Fills calls."""

    def fill(self, call: Call) -> None:
        """The next request, of the sequence in `call.context` where there are sequences."""

    def close(self, call: Call) -> bool:
        """Fills the call with what ends its sequence; False where there is nothing to end."""


class PlainSource:
    """Every prepared request in turn."""

    __slots__ = ("_count", "_position", "_requests")

    def __init__(self, forms: Sequence[RequestForm]) -> None:
        self._requests = [form.plain for form in forms]
        self._count = len(self._requests)
        self._position = 0

    def fill(self, call: Call) -> None:
        position = self._position
        call.data = self._requests[position]
        call.content = position
        self._position = position + 1 if position + 1 < self._count else 0

    def close(self, call: Call) -> bool:
        return False


class RunningSequence:
    """A sequence under way."""

    __slots__ = ("id", "length", "position", "stream")

    def __init__(self, sequence_id: int, stream: int, length: int) -> None:
        self.id = sequence_id
        self.stream = stream
        self.length = length
        self.position = 0


class SequenceSource:
    """Requests of sequences, each with an id of its own, a start and an end."""

    def __init__(
        self, streams: Sequence[Sequence[RequestForm]], options: SequenceOptions, has_own_lengths: bool, seed: int
    ) -> None:
        self._streams = streams
        self._offsets = [sum(map(len, streams[:number])) for number in range(len(streams))]
        self._options = options
        self._has_own_lengths = has_own_lengths
        self._random = random.Random(seed)
        self._begun = 0

    def fill(self, call: Call) -> None:
        sequence = call.context
        if sequence is None:
            sequence = call.context = self._begin()
        self._put(call, sequence, sequence.position + 1 >= sequence.length)

    def close(self, call: Call) -> bool:
        sequence = call.context
        if sequence is None:
            return False
        self._put(call, sequence, True)
        return True

    def _put(self, call: Call, sequence: RunningSequence, is_last: bool) -> None:
        stream = self._streams[sequence.stream]
        step = sequence.position % len(stream)
        call.data = stream[step].in_sequence(sequence.id, sequence.position == 0, is_last)
        call.content = self._offsets[sequence.stream] + step
        call.sequence_id = sequence.id
        call.flags = SEQUENCE_END if is_last else 0
        sequence.position += 1
        if is_last:
            call.context = None

    def _begin(self) -> RunningSequence:
        options = self._options
        number = self._begun
        self._begun += 1
        sequence_id = options.first_id + (number if options.id_count is None else number % options.id_count)
        stream = number % len(self._streams)
        if self._has_own_lengths:
            length = len(self._streams[stream])
        else:
            share = options.variation_percent / 100 * self._random.uniform(-1, 1)
            length = max(1, round(options.length * (1 + share)))
        return RunningSequence(sequence_id, stream, length)
