"""Forming batches: sizes, shapes, delays, priorities, queue policies, order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.config.model_config import QueuePolicy, TensorConfig
from trireme.core.errors import ErrorKind, InternalError, UnavailableError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.scheduling.answer_round import AnswerRound

US = 1_000


def occupied(bench: Any) -> Any:
    """An instance that is busy with a request, so that what follows queues up."""
    instance = bench.instance()
    bench.send("busy")
    return instance


def test_what_waits_runs_together_when_the_instance_is_free(bench: Any) -> None:
    bench.batcher()
    instance = occupied(bench)
    bench.send("a", "b", "c")
    instance.finish()
    assert instance.seen == [["busy"], ["a", "b", "c"]]
    assert instance.batches[0].size == 3
    instance.finish()
    assert bench.client.order == ["busy", "a", "b", "c"]


def test_batch_never_exceeds_the_maximum_size(bench: Any) -> None:
    bench.batcher(model={"max_batch_size": 4})
    instance = occupied(bench)
    bench.send("a", batch_size=3)
    bench.send("b", batch_size=2)
    bench.send("c", batch_size=1)
    instance.finish()
    instance.finish()
    assert instance.seen[1:] == [["a"], ["b", "c"]]


def test_without_a_batch_dimension_each_request_runs_alone(bench: Any) -> None:
    bench.batcher(model={"max_batch_size": 0})
    instance = occupied(bench)
    bench.send("a", "b")
    instance.finish()
    assert instance.seen[1:] == [["a"]]


def test_requests_of_one_turn_share_a_batch_when_deferred(bench: Any) -> None:
    bench.batcher(defer=True)
    instance = bench.instance()
    bench.send("a", "b", "c")
    assert instance.seen == []
    assert len(bench.deferred) == 1
    bench.run_deferred()
    assert instance.seen == [["a", "b", "c"]]


def test_what_the_answers_of_a_batch_lead_to_shares_the_next_batch(new_bench: Any) -> None:
    first, second = new_bench(), new_bench()
    answer_round = AnswerRound()
    for bench in (first, second):
        bench.batcher().share(answer_round)
    begin, go_on = occupied(first), second.instance()
    for name in ("a", "b"):
        [request] = first.send(name)
        request.respond = lambda response, name=name: second.send(name)
    begin.finish()
    assert go_on.seen == []
    begin.finish()
    assert go_on.seen == [["a", "b"]]


def test_what_a_single_answer_leads_to_starts_at_once(new_bench: Any) -> None:
    first, second = new_bench(), new_bench()
    answer_round = AnswerRound()
    for bench in (first, second):
        bench.batcher().share(answer_round)
    begin, go_on = first.instance(), second.instance()
    [request] = first.send("a")
    request.respond = lambda response: (second.send("a"), seen.extend(go_on.seen))
    seen: list[list[str]] = []
    begin.finish()
    assert seen == [["a"]]


def test_undeferred_first_request_starts_at_once(bench: Any) -> None:
    bench.batcher()
    instance = bench.instance()
    bench.send("a", "b")
    assert instance.seen == [["a"]]


def test_shapes_that_differ_do_not_share_a_batch(bench: Any) -> None:
    bench.batcher()
    instance = occupied(bench)
    bench.send("a", shape=(4,))
    bench.send("b", shape=(4,), batch_size=2)
    bench.send("c", shape=(5,))
    instance.finish()
    assert instance.seen[1:] == [["a", "b"]]


def test_ragged_inputs_share_a_batch_whatever_their_shapes(bench: Any) -> None:
    ragged = {"INPUT0": TensorConfig("INPUT0", "FP32", (-1,), allow_ragged_batch=True)}
    bench.batcher(model={"inputs": ragged})
    instance = occupied(bench)
    bench.send("a", shape=(4,))
    bench.send("b", shape=(5,))
    instance.finish()
    assert instance.seen[1:] == [["a", "b"]]


def test_different_sets_of_optional_inputs_do_not_share_a_batch(bench: Any) -> None:
    inputs = {
        "INPUT0": TensorConfig("INPUT0", "FP32", (4,)),
        "MASK": TensorConfig("MASK", "FP32", (4,), is_optional=True),
    }
    bench.batcher(model={"inputs": inputs})
    instance = occupied(bench)
    bench.send("a", "b")
    with_mask = bench.client.request("c")
    with_mask.inputs["MASK"] = Tensor("MASK", "FP32", (1, 4), b"")
    bench.scheduler.enqueue(with_mask)
    instance.finish()
    assert instance.seen[1:] == [["a", "b"]]


def test_batch_waits_until_preferred_size(bench: Any) -> None:
    bench.batcher(preferred_batch_sizes=(4,), max_queue_delay_us=100)
    instance = bench.instance()
    bench.send("a", "b", "c")
    assert instance.seen == []
    bench.send("d")
    assert instance.seen == [["a", "b", "c", "d"]]


def test_batch_goes_when_the_oldest_has_waited_long_enough(bench: Any) -> None:
    bench.batcher(preferred_batch_sizes=(4,), max_queue_delay_us=100)
    instance = bench.instance()
    bench.send("a")
    bench.world.advance(60 * US)
    bench.send("b")
    bench.world.advance(39 * US)
    assert instance.seen == []
    bench.world.advance(1 * US)
    assert instance.seen == [["a", "b"]]


def test_largest_preferred_prefix_is_sent_and_the_rest_waits(bench: Any) -> None:
    bench.batcher(preferred_batch_sizes=(2, 4), max_queue_delay_us=100)
    instance = occupied(bench)
    bench.world.advance(100 * US)
    bench.send("a", "b", "c", "d", "e")
    instance.finish()
    assert instance.seen[1:] == [["a", "b", "c", "d"]]
    instance.finish()
    assert len(instance.seen) == 2
    bench.world.advance(100 * US)
    assert instance.seen[2:] == [["e"]]


@pytest.mark.parametrize(("waiting", "batches"), [(5, [4, 1]), (7, [6, 1]), (3, [3]), (11, [6, 4, 1])])
def test_without_a_delay_preferred_sizes_run_first_and_the_rest_after_them(
    bench: Any, waiting: int, batches: list[int]
) -> None:
    bench.batcher(preferred_batch_sizes=(4, 6), model={"max_batch_size": 12})
    instance = occupied(bench)
    bench.send(*(f"r{number}" for number in range(waiting)))
    for _ in range(len(batches) + 1):
        instance.finish()
    assert [len(batch) for batch in instance.seen[1:]] == batches


def test_batch_that_would_pass_the_largest_preferred_size_goes_and_the_next_waits_its_own_delay(bench: Any) -> None:
    bench.batcher(preferred_batch_sizes=(2, 6), max_queue_delay_us=100)
    instance = bench.instance()
    bench.send("a", batch_size=3)
    bench.world.advance(50 * US)
    assert instance.seen == []
    bench.send("b", batch_size=4)
    assert instance.seen == [["a"]]
    instance.finish()
    bench.world.advance(60 * US)
    assert instance.seen == [["a"]]
    bench.world.advance(40 * US)
    assert instance.seen == [["a"], ["b"]]


def test_overdue_batch_takes_all_that_waits_past_the_preferred_size(bench: Any) -> None:
    bench.batcher(preferred_batch_sizes=(2,), max_queue_delay_us=100)
    instance = occupied(bench)
    bench.world.advance(100 * US)
    bench.send("a", "b", "c")
    bench.world.advance(100 * US)
    instance.finish()
    assert instance.seen[1:] == [["a", "b", "c"]]


def test_batch_that_cannot_grow_is_not_held_back(bench: Any) -> None:
    bench.batcher(max_queue_delay_us=100)
    instance = bench.instance()
    bench.send("a", shape=(4,))
    bench.send("b", shape=(5,))
    assert instance.seen == [["a"]]


def test_full_batch_goes_at_once_without_preferred_sizes(bench: Any) -> None:
    bench.batcher(max_queue_delay_us=1_000, model={"max_batch_size": 2})
    instance = bench.instance()
    bench.send("a", "b")
    assert instance.seen == [["a", "b"]]


def test_delay_begins_anew_after_the_waiting_request_was_cancelled(bench: Any) -> None:
    bench.batcher(max_queue_delay_us=100)
    instance = bench.instance()
    [first] = bench.send("a")
    first.cancel()
    bench.world.advance(100 * US)
    bench.send("b")
    bench.world.advance(99 * US)
    assert instance.seen == []
    bench.world.advance(1 * US)
    assert instance.seen == [["b"]]


def test_stopping_sends_a_waiting_batch_without_further_delay(bench: Any) -> None:
    bench.batcher(max_queue_delay_us=1_000_000)
    instance = bench.instance(is_instant=True)
    bench.send("a")
    asyncio.run(bench.scheduler.stop())
    assert instance.seen == [["a"]]


def test_higher_priority_runs_first_and_ties_run_in_order(bench: Any) -> None:
    bench.batcher(priority_levels=2, default_priority_level=2, model={"max_batch_size": 1})
    instance = occupied(bench)
    bench.send("low1", priority=2)
    bench.send("unset")
    bench.send("high1", priority=1)
    bench.send("beyond", priority=9)
    bench.send("high2", priority=1)
    for _ in range(6):
        instance.finish()
    assert [name for [name] in instance.seen[1:]] == ["high1", "high2", "low1", "unset", "beyond"]


def test_full_queue_refuses_and_counts_no_failure(bench: Any) -> None:
    bench.batcher(default_queue_policy=QueuePolicy(max_queue_size=2))
    occupied(bench)
    bench.send("a", "b")
    with pytest.raises(UnavailableError) as refused:
        bench.send("c")
    assert refused.value.message == "[request id: c] Exceeds maximum queue size"
    assert bench.stats.fail_count == 0
    assert bench.scheduler.inflight_count == 3


def test_request_that_waits_too_long_is_rejected_when_its_time_is_up(bench: Any) -> None:
    bench.batcher(default_queue_policy=QueuePolicy(default_timeout_us=50))
    instance = occupied(bench)
    bench.send("a")
    bench.world.advance(30 * US)
    bench.send("b")
    bench.world.advance(20 * US)
    error = bench.client.error("a")
    assert (error.kind, error.message) == (ErrorKind.UNAVAILABLE, "Request timeout expired")
    assert bench.stats.fail_counts["REJECTED"] == 1
    assert bench.scheduler.pending_count == 1
    instance.finish()
    assert instance.seen[1:] == [["b"]]


@pytest.mark.parametrize(
    ("default_us", "can_override", "asked_us", "rejected_after_us"),
    [(50, True, 20, 20), (50, True, 90, 50), (50, False, 20, 50), (0, True, 20, None)],
)
def test_timeout_override_only_shortens_an_existing_timeout(
    bench: Any, default_us: int, can_override: bool, asked_us: int, rejected_after_us: int | None
) -> None:
    policy = QueuePolicy(default_timeout_us=default_us, allow_timeout_override=can_override)
    bench.batcher(default_queue_policy=policy)
    occupied(bench)
    bench.send("a", timeout_us=asked_us)
    if rejected_after_us is None:
        bench.world.advance(10_000 * US)
        assert bench.client.answers["a"] == []
        return
    bench.world.advance((rejected_after_us - 1) * US)
    assert bench.client.answers["a"] == []
    bench.world.advance(1 * US)
    assert bench.client.error("a").message == "Request timeout expired"


def test_shorter_override_is_rejected_ahead_of_older_requests(bench: Any) -> None:
    bench.batcher(default_queue_policy=QueuePolicy(default_timeout_us=100, allow_timeout_override=True))
    occupied(bench)
    bench.send("long")
    bench.send("short", timeout_us=10)
    bench.world.advance(10 * US)
    assert bench.client.answers["long"] == []
    assert bench.client.error("short").kind is ErrorKind.UNAVAILABLE
    bench.world.advance(90 * US)
    assert bench.client.error("long").kind is ErrorKind.UNAVAILABLE


def test_delayed_request_runs_behind_those_in_time(bench: Any) -> None:
    policy = QueuePolicy(delays_on_timeout=True, default_timeout_us=50)
    bench.batcher(default_queue_policy=policy, model={"max_batch_size": 1})
    instance = occupied(bench)
    bench.send("old")
    bench.world.advance(50 * US)
    bench.send("new")
    instance.finish()
    instance.finish()
    assert instance.seen[1:] == [["new"], ["old"]]
    instance.finish()
    assert bench.client.order == ["busy", "new", "old"]


def test_each_priority_level_has_its_own_policy(bench: Any) -> None:
    bench.batcher(
        priority_levels=2,
        default_priority_level=1,
        priority_queue_policies={2: QueuePolicy(max_queue_size=1)},
    )
    occupied(bench)
    bench.send("a", "b", priority=1)
    bench.send("c", priority=2)
    with pytest.raises(UnavailableError):
        bench.send("d", priority=2)


def test_responses_are_released_in_the_order_of_requests(bench: Any) -> None:
    bench.batcher(preserve_ordering=True, model={"max_batch_size": 1})
    one, two = bench.instance(), bench.instance(name="model_1")
    bench.send("a", "b", "c")
    two.finish()
    two.finish()
    assert bench.client.order == []
    one.finish()
    assert bench.client.order == ["a", "b", "c"]


def test_cancelled_request_holds_nobody_up_in_the_order(bench: Any) -> None:
    bench.batcher(preserve_ordering=True, model={"max_batch_size": 1})
    one, two = bench.instance(), bench.instance(name="model_1")
    _, _, waiting = bench.send("a", "b", "c")
    bench.send("d")
    waiting.cancel()
    assert bench.client.order == ["c"]
    two.finish()
    two.finish()
    one.finish()
    assert bench.client.order == ["c", "a", "b", "d"]


def test_failed_and_good_requests_of_one_batch_are_counted_apart(bench: Any) -> None:
    bench.batcher()
    instance = occupied(bench)
    bench.send("a", "b", "c", batch_size=2)
    instance.finish()
    instance.finish([InferenceResponse([]), InferenceResponse.of_error(InternalError("no")), InferenceResponse([])])
    assert bench.client.error("b").message == "no"
    snapshot = bench.stats.snapshot()
    assert (snapshot.success.count, snapshot.fail.count) == (3, 1)
    assert (snapshot.inference_count, snapshot.execution_count) == (5, 2)
    assert [(batch.batch_size, batch.compute_infer.count) for batch in snapshot.batches] == [(1, 1), (6, 1)]


def test_pending_count_of_the_metrics_is_what_waits(bench: Any) -> None:
    bench.batcher(model={"max_batch_size": 5})
    instance = occupied(bench)
    bench.send(*[f"r{number}" for number in range(100)])
    instance.finish()
    assert bench.stats.pending_count() == 95
