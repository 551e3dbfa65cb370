"""The sequence batcher: slots, candidates, the backlog, iterations, and what clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.sequence_config import OldestStrategyConfig, SequenceBatchingConfig
from trireme.core.batch import BatchTiming
from trireme.core.errors import InvalidArgumentError
from trireme.core.response import InferenceResponse
from trireme.scheduling.sequence.strategies import DirectStrategy, OldestStrategy

MS = 1_000_000
START, END = 1, 2


def build(bench: Any, *, max_batch_size: int = 4, defer: bool = False, **fields: Any) -> Any:
    return bench.build(defer=defer, sequence_batching=SequenceBatchingConfig(**fields), max_batch_size=max_batch_size)


def oldest(bench: Any, *, model: dict[str, Any] | None = None, **fields: Any) -> Any:
    return build(bench, oldest=OldestStrategyConfig(**{"max_candidate_sequences": 8, **fields}), **(model or {}))


def test_a_sequence_has_its_slot_and_idle_slots_get_null_requests(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    for number in (1, 2, 3):
        bench.send(f"start {number}", correlation_id=number, flags=START)
    while instance.batches:
        instance.finish()
    bench.send("third", correlation_id=3)
    [batch] = instance.batches
    assert [request.id for request in batch.requests] == ["", "", "third"]
    assert [request.correlation_id for request in batch.requests] == [0, 0, 3]
    assert batch.requests[0].inputs.keys() == batch.requests[2].inputs.keys()
    instance.finish()
    assert bench.client.answers["third"][0].error is None
    stats = bench.stats.snapshot()
    assert stats.inference_count == stats.success.count == 4
    assert 3 in [entry.batch_size for entry in stats.batches]


def test_the_slot_of_an_ended_sequence_is_the_next_ones(bench: Any) -> None:
    build(bench, max_batch_size=2)
    instance = bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    bench.send("b", correlation_id=2, flags=START | END)
    bench.send("c", correlation_id=3, flags=START)
    bench.send("d", correlation_id=1, flags=END)
    assert instance.seen == [["a"], ["", "b"], ["", "c"], ["d"]]


def test_without_a_batch_dimension_each_instance_has_one_sequence(bench: Any) -> None:
    build(bench, max_batch_size=0)
    first, second = bench.instance(name="model_0"), bench.instance(name="model_1")
    for number in (1, 2, 3):
        bench.send(str(number), correlation_id=number, flags=START | END)
    assert [first.seen, second.seen] == [[["1"]], [["2"]]]
    second.finish()
    assert second.seen == [["2"], ["3"]]


def test_sequences_wait_in_the_backlog_and_are_taken_in_order(bench: Any) -> None:
    build(bench, max_batch_size=1)
    instance = bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    bench.send("b", correlation_id=2, flags=START)
    bench.send("c", correlation_id=3, flags=START | END)
    bench.send("b2", correlation_id=2, flags=END)
    assert (instance.seen, bench.scheduler.pending_count) == ([["a"]], 3)
    bench.send("a2", correlation_id=1, flags=END)
    assert instance.seen == [["a"], ["a2"], ["b"], ["b2"], ["c"]]
    assert bench.scheduler.inflight_count == 0


def test_requests_that_belong_to_no_sequence_are_refused(bench: Any) -> None:
    build(bench)
    for wrong in (0, ""):
        with pytest.raises(
            InvalidArgumentError, match="to model 'model' must specify a non-zero or non-empty correlation ID"
        ):
            bench.send("a", correlation_id=wrong, flags=START)
    with pytest.raises(InvalidArgumentError, match="must specify batch-size 1 due to requirements of sequence batcher"):
        bench.send("a", batch_size=2, correlation_id=1, flags=START)
    with pytest.raises(InvalidArgumentError, match="for sequence five to model 'model' must specify the START flag"):
        bench.send("a", correlation_id="five")
    assert bench.stats.fail_count == 0


def test_numbers_and_strings_are_different_ids(bench: Any) -> None:
    build(bench)
    bench.instance(is_instant=True)
    bench.send("a", correlation_id=1, flags=START)
    with pytest.raises(InvalidArgumentError, match="START"):
        bench.send("b", correlation_id="1")


def test_requests_of_one_sequence_never_run_together(bench: Any) -> None:
    oldest(bench)
    instance = bench.instance(max_concurrency=2)
    bench.send("a", correlation_id=1, flags=START)
    bench.send("a2", "a3", correlation_id=1)
    assert instance.seen == [["a"]]
    instance.finish()
    assert instance.seen == [["a"], ["a2"]]


def test_the_oldest_requests_of_the_candidates_share_a_batch(bench: Any) -> None:
    oldest(bench, max_candidate_sequences=3)
    instance = bench.instance()
    for number in range(1, 6):
        bench.send(f"s{number}", correlation_id=number, flags=START | END)
    instance.finish()
    assert instance.seen == [["s1"], ["s2", "s3", "s4"]]
    instance.finish()
    assert instance.seen[2] == ["s5"]


def test_oldest_waits_for_a_preferred_size_or_the_delay(bench: Any) -> None:
    oldest(bench, preferred_batch_sizes=(2, 4), max_queue_delay_us=1_000)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    assert instance.seen == []
    bench.send("b", correlation_id=2, flags=START)
    assert instance.seen == [["a", "b"]]
    instance.finish()
    bench.send("c", correlation_id=3, flags=START)
    bench.world.advance(MS)
    assert instance.seen[1:] == [["c"]]


def test_oldest_answers_in_order_where_asked_to(bench: Any) -> None:
    oldest(bench, preserve_ordering=True, model={"max_batch_size": 1})
    instances = [bench.instance(name=f"model_{number}") for number in range(2)]
    bench.send("a", correlation_id=1, flags=START)
    bench.send("b", correlation_id=2, flags=START)
    instances[1].finish()
    assert bench.client.order == []
    instances[0].finish()
    assert bench.client.order == ["a", "b"]


def test_direct_waits_until_enough_slots_have_work_or_the_delay_is_over(bench: Any) -> None:
    build(bench, max_queue_delay_us=1_000, minimum_slot_utilization=0.5)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    assert instance.seen == []
    bench.send("b", correlation_id=2, flags=START)
    assert instance.seen == [["a", "b"]]
    instance.finish()
    bench.send("a2", correlation_id=1)
    assert len(instance.seen) == 1
    bench.world.advance(MS)
    assert instance.seen[1:] == [["a2"]]


def test_different_shapes_do_not_share_a_batch(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    bench.send("a", correlation_id=1, flags=START)
    bench.send("b", correlation_id=2, flags=START, shape=(5,))
    bench.send("c", correlation_id=3, flags=START)
    bench.send("d", correlation_id=4, flags=START, shape=(5,))
    instance.finish()
    instance.finish()
    assert instance.seen == [["a"], ["", "b", "", "d"], ["", "", "c"]]


def test_responses_of_a_stream_hold_the_sequence_until_the_final_one(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    [request] = bench.send("a", correlation_id=1, flags=START)
    bench.send("a2", correlation_id=1)
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    instance.finish([None])
    assert instance.seen == [["a"]]
    bench.scheduler.respond(request, InferenceResponse.final_mark())
    assert instance.seen == [["a"], ["a2"]]


def test_an_iterative_request_runs_until_the_model_is_done(bench: Any) -> None:
    build(bench, is_iterative=True, max_batch_size=2)
    instance = bench.instance()
    bench.send("a", "b", "c")
    [first] = instance.batches[0].requests
    assert (first.flags, bool(first.correlation_id)) == (START, True)
    bench.scheduler.reschedule(first)
    instance.finish([None])
    assert instance.seen[1:] == [["a", "b"]]
    assert [request.flags for request in instance.batches[0].requests] == [0, START]
    assert len({request.correlation_id for request in instance.batches[0].requests}) == 2
    instance.finish()
    assert instance.seen[2:] == [["c"]]
    instance.finish()
    assert bench.scheduler.inflight_count == 0
    assert [len(bench.client.answers[name]) for name in "abc"] == [1, 1, 1]


def test_the_slot_of_an_iterative_request_that_is_done_gets_null_requests(bench: Any) -> None:
    build(bench, is_iterative=True, max_batch_size=2)
    instance = bench.instance()
    bench.send("a", "b")
    bench.scheduler.reschedule(instance.batches[0].requests[0])
    instance.finish([None])
    bench.scheduler.reschedule(instance.batches[0].requests[1])
    instance.finish([InferenceResponse([]), None])
    assert instance.seen == [["a"], ["a", "b"], ["", "b"]]
    assert [(request.correlation_id, request.flags) for request in instance.batches[0].requests] == [(0, 0), (2, 0)]
    instance.finish()
    assert [len(bench.client.answers[name]) for name in "ab"] == [1, 1]
    assert bench.scheduler.inflight_count == 0


def test_a_request_that_its_instance_put_off_keeps_its_start(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    original = instance.execute

    def put_off(batch: Any) -> None:
        instance.execute = original
        bench.scheduler.reschedule(batch.requests[0])
        bench.scheduler.finish(instance, batch, [None], BatchTiming(0, 0, 0))

    instance.execute = put_off
    bench.send("a", correlation_id=1, flags=START)
    [batch] = instance.batches
    assert (batch.requests[0].id, batch.requests[0].flags) == ("a", START)


def test_warm_up_needs_no_correlation_id(bench: Any) -> None:
    build(bench, defer=True)
    instance = bench.instance(is_instant=True)
    bench.send("warm")
    bench.run_deferred()
    assert instance.seen == [["warm"]]
    assert bench.scheduler.inflight_count == 0
    with pytest.raises(InvalidArgumentError, match="non-zero or non-empty correlation ID"):
        bench.send("client", arrival_ns=5)


def test_a_rescheduled_request_runs_before_those_that_follow_it(bench: Any) -> None:
    build(bench)
    instance = bench.instance()
    [request] = bench.send("a", correlation_id=1, flags=START)
    bench.send("a2", correlation_id=1, flags=END)
    bench.scheduler.reschedule(request)
    instance.finish([None])
    assert request.flags == 0
    instance.finish()
    assert instance.seen == [["a"], ["a"], ["a2"]]


def test_a_rescheduled_request_that_was_cancelled_is_not_run_again(bench: Any) -> None:
    build(bench, is_iterative=True)
    instance = bench.instance()
    [request] = bench.send("a")
    request.cancel()
    bench.scheduler.reschedule(request)
    instance.finish([None])
    assert bench.client.error("a").kind.name == "CANCELLED"
    assert (instance.batches, bench.scheduler.inflight_count, bench.scheduler.pending_count) == ([], 0, 0)


def test_the_first_batch_waits_for_as_many_requests_as_the_environment_says(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "2")
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "1")
    build(bench, max_batch_size=2)
    instance = bench.instance()
    for number in (1, 2, 3):
        assert instance.seen == []
        bench.send(str(number), correlation_id=number, flags=START)
    assert instance.seen == [["1", "2"]]


def test_what_uses_an_id_again_whose_end_has_not_run_counts_as_backlog(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")
    build(bench, max_batch_size=2)
    instance = bench.instance()
    bench.send("a1", correlation_id=1, flags=START)
    bench.send("a2", correlation_id=1, flags=END)
    bench.send("b1", correlation_id=2, flags=START)
    bench.send("c1", correlation_id=1, flags=START)
    assert instance.seen == []
    bench.send("c2", correlation_id=1, flags=END)
    assert instance.seen == [["a1", "b1"]]
    for _ in range(4):
        instance.finish()
    assert [name for batch in instance.seen for name in batch if name[0] in "ac"] == ["a1", "a2", "c1", "c2"]


def test_configuration_chooses_the_strategy(bench: Any) -> None:
    assert type(build(bench)._dispatcher._strategy) is DirectStrategy
    assert type(build(bench, is_iterative=True)._dispatcher._strategy) is DirectStrategy
    assert type(oldest(bench)._dispatcher._strategy) is OldestStrategy
