"""Responses that cannot be passed on: an error takes their place, nobody waits, and it is counted as a failure."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import CancelledError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import CANCELED, OTHER

FAILURE = "the server failed to answer the request: OverflowError: no such shape"


def take_errors_alone(bench: Any, request: InferenceRequest) -> None:
    """Makes it a request whose good responses fail on their way."""
    passed = request.respond

    def respond(response: InferenceResponse) -> None:
        if response.error is None:
            raise OverflowError("no such shape")
        passed(response)

    request.respond = respond
    request.answer_stats = bench.stats


def send(bench: Any, name: str, **fields: Any) -> InferenceRequest:
    request = bench.client.request(name, **fields)
    take_errors_alone(bench, request)
    bench.scheduler.enqueue(request)
    return request


@pytest.mark.parametrize("kind", ["direct", "batches", "ordered", "sequences"])
def test_an_error_takes_the_place_and_is_counted(bench: Any, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    fields: dict[str, Any] = {}
    if kind == "direct":
        bench.build()
    elif kind == "sequences":
        bench.build(sequence_batching=SequenceBatchingConfig(max_idle_us=1_000_000), max_batch_size=4)
        fields = {"correlation_id": 7, "flags": 3}
    else:
        bench.batcher(preserve_ordering=kind == "ordered")
    instance = bench.instance()
    with caplog.at_level(logging.ERROR):
        send(bench, "failing", **fields)
        bench.send("good", **{**fields, "correlation_id": 8} if fields else {})
        while instance.batches:
            instance.finish()
    assert bench.client.error("failing").message == FAILURE
    [good] = bench.client.answers["good"]
    assert good.error is None
    assert bench.stats.success_count == 2  # the model's
    assert bench.stats.fail_counts[OTHER] == bench.stats.error_count == 1
    assert "a response to request 'failing' of model 'model' was lost" in caplog.text
    assert bench.scheduler.inflight_count == 0


def test_a_stream_ends_at_the_gap_and_counts_once(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    request = send(bench, "stream")
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    assert request.is_cancelled
    assert instance.cancelled == [request]
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    bench.scheduler.respond(request, InferenceResponse.of_error(CancelledError("")))
    instance.finish([None])
    first, *_, last = bench.client.answers["stream"]
    assert first.error.message == FAILURE
    assert [first.is_final, last.is_final] == [False, True]
    assert (bench.stats.fail_counts[OTHER], bench.stats.fail_counts[CANCELED]) == (1, 0)
    assert bench.scheduler.inflight_count == 0


def test_a_response_whose_turn_comes_with_another_one_holds_nobody_up(bench: Any) -> None:
    bench.batcher(preserve_ordering=True, model={"max_batch_size": 1})
    slow, quick = bench.instance(name="slow"), bench.instance(name="quick")
    bench.send("first")
    send(bench, "failing")
    third = bench.instance(name="third")
    bench.send("third")
    quick.finish()
    third.finish()
    assert bench.client.order == []
    slow.finish()
    assert bench.client.order == ["first", "failing", "third"]
    assert bench.client.error("failing").message == FAILURE


def test_what_looks_at_answers_costs_none(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench.batcher()
    instance = bench.instance()

    def look(request: Any, response: Any) -> None:
        raise MemoryError

    bench.scheduler.look_at_answers(look)
    bench.send("a")
    bench.send("b")
    instance.finish()
    instance.finish()
    assert bench.client.order == ["a", "b"]
    assert "failed to look at a response of model 'model'" in caplog.text
