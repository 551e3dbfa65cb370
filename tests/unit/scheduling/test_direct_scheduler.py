"""The default scheduler: one request per execution, and what every scheduler owes its requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.errors import ErrorKind, InternalError, ServingError, UnavailableError
from trireme.core.response import InferenceResponse


def test_request_reaches_an_idle_instance_in_the_same_call(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a")
    assert instance.seen == [["a"]]
    assert bench.scheduler.pending_count == 0
    assert bench.scheduler.inflight_count == 1


def test_each_request_runs_alone_and_in_order(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a", "b", "c")
    assert bench.scheduler.pending_count == 2
    for _ in range(3):
        instance.finish()
    assert instance.seen == [["a"], ["b"], ["c"]]
    assert bench.client.order == ["a", "b", "c"]
    assert bench.scheduler.inflight_count == 0


def test_next_request_starts_before_the_finished_one_is_answered(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    started = []
    request = bench.client.request("a")
    request.respond = lambda response: started.append(list(instance.seen))
    bench.scheduler.enqueue(request)
    bench.send("b")
    instance.finish()
    assert started == [[["a"], ["b"]]]


def test_requests_wait_while_no_instance_is_attached(bench: Any) -> None:
    bench.build()
    bench.send("a", "b")
    assert bench.scheduler.pending_count == 2
    instance = bench.instance()
    assert instance.seen == [["a"]]


def test_instance_takes_as_many_batches_as_its_concurrency(bench: Any) -> None:
    bench.build()
    instance = bench.instance(max_concurrency=3)
    bench.send("a", "b", "c", "d", "e")
    assert instance.seen == [["a"], ["b"], ["c"]]
    instance.finish(index=1)
    assert instance.seen[3:] == [["d"]]
    assert bench.client.order == ["b"]


def test_load_is_spread_over_instances_before_it_is_stacked(bench: Any) -> None:
    bench.build()
    one, two = bench.instance(max_concurrency=2), bench.instance(name="model_1", max_concurrency=2)
    bench.send("a", "b")
    assert (one.seen, two.seen) == ([["a"]], [["b"]])


def test_detached_instance_gets_nothing_more_and_its_batch_still_counts(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a", "b")
    bench.scheduler.detach(instance)
    instance.finish()
    assert instance.seen == [["a"]]
    assert bench.client.order == ["a"]
    assert bench.scheduler.pending_count == 1


def test_reattached_instance_is_not_given_more_than_it_can_take(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a", "b", "c")
    bench.scheduler.detach(instance)
    bench.scheduler.attach(instance)
    assert instance.seen == [["a"]]
    instance.finish()
    assert instance.seen == [["a"], ["b"]]


def test_long_queue_on_an_instance_that_answers_at_once_is_no_deep_stack(bench: Any) -> None:
    bench.build()
    names = [str(number) for number in range(5_000)]
    bench.send(*names)
    bench.instance(is_instant=True)
    assert bench.client.order == names


def test_client_that_sends_again_from_its_answer_is_no_deep_stack(bench: Any) -> None:
    bench.build()
    bench.instance(is_instant=True)
    left = [3_000]

    def again(_: InferenceResponse) -> None:
        left[0] -= 1
        if left[0]:
            bench.scheduler.enqueue(follow_up())

    def follow_up() -> Any:
        request = bench.client.request("again")
        request.respond = again
        return request

    bench.scheduler.enqueue(follow_up())
    assert left == [0]
    assert bench.scheduler.inflight_count == 0


def test_cancelled_while_queued_is_answered_at_once_and_never_runs(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    _, waiting = bench.send("a", "b")
    waiting.cancel()
    error = bench.client.error("b")
    assert (error.kind, error.message) == (ErrorKind.CANCELLED, "")
    assert bench.scheduler.pending_count == 0
    instance.finish()
    assert instance.seen == [["a"]]
    assert bench.stats.fail_counts["CANCELED"] == 1


def test_cancelled_before_it_is_enqueued_is_answered_without_running(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    request = bench.client.request("a")
    request.cancel()
    bench.scheduler.enqueue(request)
    assert bench.client.error("a").kind is ErrorKind.CANCELLED
    assert instance.seen == []


def test_cancelled_while_running_is_passed_to_its_instance_and_answered_as_usual(bench: Any) -> None:
    bench.build()
    one, two = bench.instance(), bench.instance(name="model_1")
    _, second = bench.send("a", "b")
    second.cancel()
    assert (one.cancelled, two.cancelled) == ([], [second])
    two.finish()
    assert len(bench.client.answers["b"]) == 1


def test_cancelling_an_answered_request_does_nothing(bench: Any) -> None:
    bench.build()
    instance = bench.instance(is_instant=True)
    [request] = bench.send("a")
    request.cancel()
    assert instance.cancelled == []
    assert len(bench.client.answers["a"]) == 1


def test_stopped_scheduler_refuses_with_the_words_of_the_protocol(bench: Any) -> None:
    bench.build()
    asyncio.run(bench.scheduler.stop())
    with pytest.raises(UnavailableError) as refused:
        bench.send("x7")
    assert refused.value.message == (
        "[request id: x7] Server is stopping, scheduler for model has stopped accepting new inference requests"
    )


def test_stop_returns_when_the_last_request_is_answered(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a", "b")

    async def scenario() -> None:
        stopping = asyncio.ensure_future(bench.scheduler.stop())
        await asyncio.sleep(0)
        instance.finish()
        await asyncio.sleep(0)
        assert not stopping.done()
        instance.finish()
        await stopping

    asyncio.run(scenario())
    assert bench.client.order == ["a", "b"]


def test_error_response_fails_its_own_request_only(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a")
    instance.finish([InferenceResponse.of_error(InternalError("boom"))])
    assert bench.client.error("a").message == "boom"
    snapshot = bench.stats.snapshot()
    assert (snapshot.fail.count, snapshot.success.count, snapshot.execution_count) == (1, 0, 1)
    assert bench.stats.fail_counts["BACKEND"] == 1


def test_too_few_responses_still_answer_every_request(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a")
    instance.finish([])
    assert bench.client.error("a").kind is ErrorKind.INTERNAL


def test_batch_finished_twice_is_answered_once(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a")
    batch = instance.batches[0]
    instance.finish()
    bench.scheduler.finish(instance, batch, [InferenceResponse([])], (0, 0, 0))
    assert len(bench.client.answers["a"]) == 1
    bench.send("b", "c")
    assert instance.seen == [["a"], ["b"]]


def test_client_that_raises_does_not_harm_the_next(bench: Any) -> None:
    bench.build()
    instance = bench.instance()

    def broken(_: InferenceResponse) -> None:
        raise RuntimeError("connection is gone")

    bad = bench.client.request("bad")
    bad.respond = broken
    bench.scheduler.enqueue(bad)
    bench.send("good")
    instance.finish()
    instance.finish()
    assert bench.client.order == ["good"]
    assert bench.scheduler.inflight_count == 0


def test_stream_is_passed_on_and_counted_once_at_its_end(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    [request] = bench.send("a")
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    instance.finish([None])
    assert bench.stats.success_count == 0
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    bench.world.advance(7_000)
    bench.scheduler.respond(request, InferenceResponse.final_mark())
    assert [response.is_final for response in bench.client.answers["a"]] == [False, False, True]
    snapshot = bench.stats.snapshot()
    assert (snapshot.success.count, snapshot.success.ns) == (1, 7_000)
    assert snapshot.responses["0"].success.count == 1
    assert snapshot.responses["2"].empty_response.count == 1
    assert bench.scheduler.inflight_count == 0


def test_stream_that_ends_before_its_execution_is_counted_with_it(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    [request] = bench.send("a")
    bench.scheduler.respond(request, InferenceResponse([]))
    assert (bench.stats.success_count, bench.scheduler.inflight_count) == (0, 0)
    instance.finish([None])
    assert bench.stats.success_count == 1


def test_stream_that_ends_with_an_error_is_a_failure(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    [request] = bench.send("a")
    bench.scheduler.respond(request, InferenceResponse.of_error(ServingError("late")))
    instance.finish([None])
    assert (bench.stats.success_count, bench.stats.fail_counts["BACKEND"]) == (0, 1)


def test_cancel_reaches_the_instance_that_still_streams(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    [request] = bench.send("a")
    instance.finish([None])
    request.cancel()
    assert instance.cancelled == [request]


def test_stop_waits_for_streams_and_for_batches_that_are_out(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    [request] = bench.send("a")

    async def scenario() -> None:
        stopping = asyncio.ensure_future(bench.scheduler.stop())
        await asyncio.sleep(0)
        bench.scheduler.respond(request, InferenceResponse.final_mark())
        await asyncio.sleep(0)
        assert not stopping.done()
        instance.finish([None])
        await stopping

    asyncio.run(scenario())


def test_rescheduled_request_runs_again_behind_those_that_wait(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    first, _ = bench.send("a", "b")
    bench.scheduler.reschedule(first)
    instance.finish([None])
    instance.finish()
    instance.finish()
    assert instance.seen == [["a"], ["b"], ["a"]]
    assert bench.client.order == ["b", "a"]
    assert bench.scheduler.inflight_count == 0


def test_rescheduled_request_that_was_cancelled_meanwhile_is_answered(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    [request] = bench.send("a")
    bench.scheduler.reschedule(request)
    request.cancel()
    instance.finish([None])
    assert bench.client.error("a").kind is ErrorKind.CANCELLED
    assert bench.scheduler.inflight_count == 0


def test_first_execution_is_held_until_enough_requests_wait(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    bench.build()
    instance = bench.instance()
    bench.send("a", "b")
    assert instance.seen == []
    bench.send("c")
    assert instance.seen == [["a"]]
    instance.finish()
    instance.finish()
    instance.finish()
    bench.send("d")
    assert instance.seen[-1] == ["d"]


def test_statistics_charge_each_request_its_own_wait(bench: Any) -> None:
    bench.build()
    instance = bench.instance()
    bench.send("a", "b")
    bench.world.advance(10_000)
    instance.finish()
    bench.world.advance(5_000)
    instance.finish()
    snapshot = bench.stats.snapshot()
    assert (snapshot.success.count, snapshot.success.ns) == (2, 25_000)
    assert (snapshot.queue.count, snapshot.queue.ns) == (2, 10_000)
    assert (snapshot.compute_infer.count, snapshot.compute_infer.ns) == (2, 40_000)


def test_a_client_in_trouble_keeps_none_of_those_behind_it_from_being_given_up(bench: Any) -> None:
    bench.build()
    first = bench.client.request("a")

    def fail(response: InferenceResponse) -> None:
        raise RuntimeError("the client is gone")

    first.respond = fail
    bench.scheduler.enqueue(first)
    bench.send("b", "c")
    bench.scheduler.give_up_waiting(UnavailableError("nobody is left"))
    assert [bench.client.error(name).message for name in ("b", "c")] == ["nobody is left"] * 2
    assert (bench.scheduler.pending_count, bench.scheduler.inflight_count) == (0, 0)
