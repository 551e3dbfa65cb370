"""An id that is used again while its first sequence still waits for an instance: the two have nothing in common."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import InvalidArgumentError

MS = 1_000_000
START, END = 1, 2
EXPIRED = "timeout of the corresponding sequence has been expired"


@pytest.fixture
def full(bench: Any) -> Any:
    """One slot, and a sequence in it that goes on for as long as it is not told to end."""
    bench.build(sequence_batching=SequenceBatchingConfig(max_idle_us=1_000_000), max_batch_size=1)
    bench.model = bench.instance(is_instant=True)
    bench.send("holder", correlation_id=1, flags=START)
    return bench


def make_room(bench: Any) -> None:
    bench.send("holder's last", correlation_id=1, flags=END)


def test_the_timeout_of_a_cancelled_request_does_not_reach_the_next_sequence(full: Any) -> None:
    [left] = full.send("left", correlation_id=2, flags=START, timeout_us=3_000)
    full.send("new", correlation_id=2, flags=START)
    left.cancel()
    full.world.advance(10 * MS)
    make_room(full)
    assert full.model.seen == [["holder"], ["holder's last"], ["new"]]


@pytest.mark.parametrize("first_flags", [START, START | END])
def test_a_sequence_that_expires_leaves_the_next_of_its_id_alone(full: Any, first_flags: int) -> None:
    full.send("old", correlation_id=2, flags=first_flags, timeout_us=3_000)
    full.send("new", correlation_id=2, flags=START)
    full.world.advance(3 * MS)
    assert full.client.error("old").message == EXPIRED
    full.send("new2", correlation_id=2)
    make_room(full)
    assert full.model.seen == [["holder"], ["holder's last"], ["new"], ["new2"]]


def test_the_next_sequence_of_an_id_expires_alone(full: Any) -> None:
    full.send("old", correlation_id=2, flags=START | END)
    full.send("new", correlation_id=2, flags=START, timeout_us=3_000)
    full.send("new2", correlation_id=2)
    full.world.advance(3 * MS)
    assert [full.client.error(name).message for name in ("new", "new2")] == [EXPIRED] * 2
    with pytest.raises(InvalidArgumentError, match="must specify the START flag"):
        full.send("new3", correlation_id=2)
    make_room(full)
    assert full.model.seen == [["holder"], ["holder's last"], ["old"]]


def test_a_later_timeout_counts_after_an_earlier_one_has_passed(full: Any) -> None:
    full.send("old", correlation_id=2, flags=START | END, timeout_us=3_000)
    full.send("new", correlation_id=2, flags=START, timeout_us=5_000)
    full.world.advance(3 * MS)
    assert full.client.error("old").message == EXPIRED
    full.world.advance(2 * MS)
    assert full.client.error("new").message == EXPIRED
    assert full.scheduler.pending_count == full.scheduler.inflight_count - 1 == 0  # the holder may go on
