"""What ranks are told of a step comes back as it was, in few bytes, and blocks are told of once."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from trireme.llm.executors.ranks.messages import (
    Order,
    StepMessage,
    TableChanges,
    order_bytes,
    read_step,
    receive,
    step_bytes,
)
from trireme.llm.executors.torch.layout import Span
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import SchedulerLimits

PACKED = np.array([[5, 7, 9], [11, 0, 1], [0, 1, 1], [43, 4, 5]], np.int64)
STEP = StepMessage(PACKED, (Span(0, 1, 11, 3), Span(1, 3, 0, 0)), ((3, 2, (8, 9)), (0, 0, (4,))), (0, 2))


def through_a_socket(data: bytes) -> tuple[Order, list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        return receive(theirs)


def test_a_step_comes_back_as_it_was() -> None:
    order, parts = through_a_socket(step_bytes(STEP))
    found = read_step(parts)
    assert order is Order.STEP
    assert found.packed.dtype == np.int64
    np.testing.assert_array_equal(found.packed, PACKED)
    assert (found.spans, found.tables, found.rows) == (STEP.spans, STEP.tables, STEP.rows)


def test_a_token_takes_sixteen_bytes() -> None:
    many = StepMessage(np.tile(PACKED, 100), STEP.spans, STEP.tables, STEP.rows)
    assert len(step_bytes(many)) - len(step_bytes(STEP)) == 16 * (300 - 3)


def test_other_orders() -> None:
    order, parts = through_a_socket(order_bytes(Order.COPY, [1, 2, 3, 4]))
    assert (order, parts[0].tolist()) == (Order.COPY, [1, 2, 3, 4])
    assert through_a_socket(order_bytes(Order.END))[0] is Order.END


def test_the_end_of_the_first_rank_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(step_bytes(STEP)[:30])
    ours.close()
    with theirs, pytest.raises(ConnectionError, match="the first rank is gone"):
        receive(theirs)


def test_blocks_are_told_of_once_and_anew_for_the_next_sequence_of_a_slot() -> None:
    scheduler = Scheduler(SchedulerLimits(4, 16, 1, 64, has_prefix_cache=False))
    changes = TableChanges(1)
    for number in (1, 2):
        scheduler.add(Sequence(number, [5] * 7, 7, SamplingParams(), lambda _: None, BlockKeys(4), 9))
        told = []
        while scheduler.has_work:
            plan = scheduler.schedule()
            assert plan is not None
            told.append([(slot, first, len(blocks)) for slot, first, blocks in changes.of(plan)])
            for chunk in plan.chunks:
                scheduler.settle(chunk, (6,))
                if len(chunk.sequence.tokens) == 9:
                    scheduler.finish(chunk.sequence, FinishReason.LENGTH)
        assert told == [[(0, 0, 2)], []]
