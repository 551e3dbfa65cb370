"""What the first rank tells the others of each step, in whole numbers: tokens, places, new blocks, wanted rows."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from trireme.llm.executors.torch.layout import Span
from trireme.llm.step_plan import StepPlan

Integers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.int32]

_HEADER = struct.Struct("<5i")
"""The kind, and how many numbers each of up to four parts has."""
_PARTS = 4
_FIELDS = 4
"""Of a token: itself, its position, whether its sequence is long, its place in the cache. Of a span: where it begins
and ends, its first position, its slot."""


class Order(IntEnum):
    """What the others are to do."""

    STEP = 1
    LOGITS = 2
    COPY = 3
    END = 4


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A step."""

    packed: Integers
    """`[4, tokens]`."""
    spans: tuple[Span, ...]
    tables: tuple[tuple[int, int, tuple[int, ...]], ...]
    """Blocks that the others do not know of: a slot, the place of the first in its table, the blocks."""
    rows: tuple[int, ...]
    """Whose logits may be asked for."""


Message = tuple[Order, list[Integers]]


class TableChanges:
    """Which blocks of running sequences the others have not been told of."""

    def __init__(self, slot_count: int) -> None:
        self._known = [0] * slot_count

    def of(self, plan: StepPlan) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """Those of a step, which are known from then on."""
        for sequence in plan.joined:
            self._known[sequence.slot] = 0
        changes = []
        for chunk in plan.chunks:
            slot, blocks = chunk.sequence.slot, chunk.sequence.blocks
            known = self._known[slot]
            if known < len(blocks):
                changes.append((slot, known, tuple(blocks[known:])))
                self._known[slot] = len(blocks)
        return tuple(changes)


def step_bytes(step: StepMessage) -> bytes:
    """A step as it is sent."""
    spans = [number for span in step.spans for number in (span.begin, span.end, span.start, span.slot)]
    tables = [number for slot, first, blocks in step.tables for number in (slot, first, len(blocks), *blocks)]
    return order_bytes(Order.STEP, step.packed.reshape(-1), spans, tables, step.rows)


def order_bytes(order: Order, *parts: Items[int] | Integers) -> bytes:
    """Any order as it is sent."""
    words = [np.asarray(part, np.int32) for part in parts]
    sizes = [len(part) for part in words] + [0] * (_PARTS - len(words))
    return _HEADER.pack(order, *sizes) + b"".join(part.tobytes() for part in words)


def read_step(parts: Items[Integers]) -> StepMessage:
    """What `step_bytes` had."""
    packed, spans, tables, rows = parts
    fields = spans.reshape(-1, _FIELDS).tolist()
    return StepMessage(
        packed.reshape(_FIELDS, -1), tuple(Span(*one) for one in fields), tuple(_tables(tables)), tuple(rows.tolist())
    )


def _tables(words: Integers) -> Iterable[tuple[int, int, tuple[int, ...]]]:
    place = 0
    while place < len(words):
        slot, first, count = words[place : place + 3].tolist()
        place += 3 + count
        yield slot, first, tuple(words[place - count : place].tolist())


def receive(source: socket.socket) -> Message:
    """The next order; raises ConnectionError where the first rank is gone."""
    order, *sizes = _HEADER.unpack(_exactly(source, _HEADER.size))
    words: _Words = np.frombuffer(_exactly(source, 4 * sum(sizes)), np.int32)
    return Order(order), [part.astype(np.int64) for part in np.split(words, np.cumsum(sizes)[:-1])]


def _exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = source.recv(count - len(found))
        if not piece:
            raise ConnectionError("the first rank is gone")
        found += piece
    return bytes(found)
