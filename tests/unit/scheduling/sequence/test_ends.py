"""How sequences end: by their last request, in silence, by a cancellation, with their instance, with the model."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import InternalError, InvalidArgumentError, UnavailableError
from trireme.core.response import InferenceResponse
from trireme.scheduling.sequence.table import REMEMBERED_LOSSES

MS = 1_000_000
START, END = 1, 2


def build(bench: Any, *, max_batch_size: int = 4, defer: bool = False, **fields: Any) -> Any:
    return bench.build(defer=defer, sequence_batching=SequenceBatchingConfig(**fields), max_batch_size=max_batch_size)


def test_a_timeout_ends_a_sequence_in_the_backlog(bench: Any) -> None:
    build(bench, max_batch_size=1)
    instance = bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    bench.send("b", correlation_id=2, flags=START, timeout_us=3_000)
    bench.send("b2", correlation_id=2)
    bench.world.advance(3 * MS)
    for name in ("b", "b2"):
        error = bench.client.error(name)
        assert isinstance(error, UnavailableError)
        assert error.message == "timeout of the corresponding sequence has been expired"
    assert bench.stats.fail_counts["REJECTED"] == 2
    with pytest.raises(InvalidArgumentError, match="for sequence 2 to model 'model' must specify the START flag"):
        bench.send("b3", correlation_id=2)
    assert instance.seen == [["a"]]


def test_an_idle_sequence_ends_and_gives_its_slot_away(bench: Any) -> None:
    build(bench, max_batch_size=1, max_idle_us=5_000)
    instance = bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    bench.world.advance(4 * MS)
    bench.send("a2", correlation_id=1)
    bench.send("b", correlation_id=2, flags=START)
    bench.world.advance(4 * MS)
    assert instance.seen == [["a"], ["a2"]]
    bench.world.advance(1 * MS)
    assert instance.seen == [["a"], ["a2"], ["b"]]
    with pytest.raises(InvalidArgumentError, match="must specify the START flag on the first request of the sequence"):
        bench.send("a3", correlation_id=1)


def test_a_sequence_that_executes_for_long_is_not_idle(bench: Any) -> None:
    build(bench, max_idle_us=5_000)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    bench.world.advance(50 * MS)
    instance.finish()
    bench.send("a2", correlation_id=1)
    assert instance.seen == [["a"], ["a2"]]


def test_a_new_start_ends_the_old_sequence_with_a_warning(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    build(bench)
    instance = bench.instance()
    with caplog.at_level(logging.WARNING):
        bench.send("a", correlation_id=7, flags=START)
        bench.send("a2", correlation_id=7)
        bench.send("b", correlation_id=7, flags=START)
    assert "sequence 7 for model 'model' has a conflict. The previous sequence did not end" in caplog.text
    for _ in range(3):
        instance.finish()
    assert instance.seen == [["a"], ["a2"], ["b"]]


def test_an_id_used_again_waits_for_the_end_of_its_first_sequence(bench: Any) -> None:
    build(bench, max_batch_size=2)
    instance = bench.instance()
    bench.send("a", correlation_id=7, flags=START | END)
    bench.send("b", correlation_id=7, flags=START)
    assert instance.seen == [["a"]]
    instance.finish()
    assert instance.seen == [["a"], ["b"]]


def test_cancelling_a_waiting_request_cancels_what_waits_of_its_sequence(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    second, _ = bench.send("a2", "a3", correlation_id=1)
    bench.send("b", correlation_id=1, flags=START)
    second.cancel()
    assert [bench.client.error(name).kind.name for name in ("a2", "a3")] == ["CANCELLED"] * 2
    assert bench.stats.fail_counts["CANCELED"] == 2
    instance.finish()
    assert instance.seen == [["a"], ["b"]]


def test_cancelling_the_rest_of_a_sequence_frees_its_slot(bench: Any) -> None:
    build(bench, max_batch_size=1)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    [second] = bench.send("a2", correlation_id=1)
    bench.send("b", correlation_id=2, flags=START)
    second.cancel()
    instance.finish()
    assert instance.seen == [["a"], ["b"]]
    with pytest.raises(InvalidArgumentError, match="START"):
        bench.send("a3", correlation_id=1)


def test_a_running_request_is_cancelled_at_its_instance(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    [request] = bench.send("a", correlation_id=1, flags=START)
    request.cancel()
    assert instance.cancelled == [request]


def test_a_lost_instance_ends_its_sequences_and_what_has_not_begun_goes_elsewhere(bench: Any) -> None:
    build(bench, max_batch_size=1)
    lost = bench.instance(name="model_0")
    bench.send("a", correlation_id=1, flags=START)
    bench.send("a2", correlation_id=1, flags=END)
    bench.send("b", correlation_id=1, flags=START)
    bench.send("c", correlation_id=2, flags=START)
    bench.scheduler.detach(lost)
    lost.finish([InferenceResponse.of_error(InternalError("died"))])
    assert bench.client.error("a").message == "died"
    assert "sequence 1 of model 'model' ended early" in bench.client.error("a2").message
    other = bench.instance(name="model_1")
    other.finish()
    assert other.seen == [["c"]]
    bench.send("c2", correlation_id=2, flags=END)
    other.finish()
    assert other.seen == [["c"], ["c2"], ["b"]]


def test_a_client_hears_of_the_loss_of_its_sequence_until_it_ends_or_begins_it_again(bench: Any) -> None:
    build(bench)
    lost = bench.instance(name="model_0", is_instant=True)
    bench.send("left open", correlation_id=1, flags=START)
    bench.send("ended", correlation_id=2, flags=START | END)
    bench.send("left open", correlation_id=3, flags=START)
    bench.scheduler.detach(lost)
    other = bench.instance(name="model_1", is_instant=True)
    for flags in (0, 0, END):
        with pytest.raises(UnavailableError, match="sequence 1 of model 'model' ended early"):
            bench.send("more", correlation_id=1, flags=flags)
    bench.send("anew", correlation_id=3, flags=START | END)
    assert other.seen == [["anew"]]
    for correlation_id in (1, 2, 3):
        with pytest.raises(InvalidArgumentError, match="must specify the START flag"):
            bench.send("more", correlation_id=correlation_id)


def test_only_so_many_losses_are_remembered(bench: Any) -> None:
    build(bench, max_batch_size=64)
    for first in range(0, REMEMBERED_LOSSES, 64):
        lost = bench.instance(name="model_0", is_instant=True)
        for number in range(first + 1, first + 65):
            bench.send(str(number), correlation_id=number, flags=START)
        bench.scheduler.detach(lost)
    lost = bench.instance(name="model_0", is_instant=True)
    bench.send("one too many", correlation_id=REMEMBERED_LOSSES + 1, flags=START)
    bench.scheduler.detach(lost)
    with pytest.raises(InvalidArgumentError, match="must specify the START flag"):
        bench.send("first", correlation_id=1)
    with pytest.raises(UnavailableError, match="ended early"):
        bench.send("second", correlation_id=2)


def test_stopping_drains_what_was_taken_and_begins_nothing(bench: Any) -> None:
    build(bench, max_batch_size=1)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    bench.send("b", correlation_id=2, flags=START)

    async def stop() -> None:
        stopping = asyncio.create_task(bench.scheduler.stop())
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="has stopped accepting new inference requests"):
            bench.send("c", correlation_id=3, flags=START)
        instance.finish()  # sequence 1 is silent from now on and must not keep 2 from its slot
        assert instance.seen == [["a"], ["b"]]
        assert not stopping.done()
        instance.finish()
        await asyncio.wait_for(stopping, 1)

    asyncio.run(stop())


def test_a_silent_sequence_counts_as_in_flight_until_it_is_idle_for_too_long(bench: Any) -> None:
    build(bench, max_idle_us=1_000)
    bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    assert bench.scheduler.inflight_count == 1
    bench.world.advance(MS)
    assert bench.scheduler.inflight_count == 0


def test_a_request_that_comes_cancelled_ends_its_sequence(bench: Any) -> None:
    build(bench)
    instance = bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    bench.send("a2", correlation_id=1, is_cancelled=True)
    assert bench.client.error("a2").kind.name == "CANCELLED"
    assert bench.scheduler.inflight_count == 0
    with pytest.raises(InvalidArgumentError, match="START"):
        bench.send("a3", correlation_id=1)
    assert instance.seen == [["a"]]
