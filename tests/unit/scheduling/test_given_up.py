"""Requests that their clients gave up while the model had them: how they are counted and told."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.core.errors import CancelledError, InternalError, ServingError
from trireme.core.response import InferenceResponse
from trireme.observe.recent.requests import NEVER_NS, RecentRequests


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize(
    ("is_given_up", "error", "reason"),
    [
        (True, CancelledError("the request was ended: cancelled"), "CANCELED"),
        (True, InternalError("it broke"), "BACKEND"),
        (False, CancelledError("the model did not want it"), "BACKEND"),
    ],
)
def test_model_that_ends_what_its_client_gave_up_has_not_failed(
    bench: Any, is_stream: bool, is_given_up: bool, error: ServingError, reason: str
) -> None:
    bench.build(is_decoupled=is_stream)
    instance = bench.instance()
    [request] = bench.send("a")
    if is_given_up:
        request.cancel()
    if is_stream:
        bench.scheduler.respond(request, InferenceResponse([], is_final=False))
        bench.scheduler.respond(request, InferenceResponse.of_error(error))
        instance.finish([None])
    else:
        instance.finish([InferenceResponse.of_error(error)])
    assert bench.stats.fail_counts == dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0) | {reason: 1}


@pytest.mark.parametrize("is_slow", [True, False])
def test_stream_that_its_client_gave_up_is_told_as_cancelled_once(bench: Any, is_slow: bool) -> None:
    requests = RecentRequests(clock=bench.world.clock)
    bench.build(is_decoupled=True)
    bench.stats.watch = requests.watch(bench.stats)
    if not is_slow:
        bench.stats.slow_ns = NEVER_NS
    instance = bench.instance()
    [request] = bench.send("a")
    instance.finish([None])
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    request.cancel()
    bench.scheduler.respond(request, InferenceResponse.final_mark())
    slowest, failed = requests.records()
    assert (slowest, [(record.request_id, record.reason) for record in failed]) == ([], [("a", "CANCELED")])
    assert (bench.stats.success_count, bench.stats.fail_count) == (1, 0)


@pytest.mark.parametrize("end", [InferenceResponse.final_mark(), InferenceResponse.of_error(CancelledError("ended"))])
def test_stream_whose_client_has_all_that_it_wanted_is_answered_well(bench: Any, end: InferenceResponse) -> None:
    requests = RecentRequests(clock=bench.world.clock)
    bench.build(is_decoupled=True)
    bench.stats.watch = requests.watch(bench.stats)
    instance = bench.instance()
    [request] = bench.send("a")
    instance.finish([None])
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    request.finish()
    assert request.is_cancelled  # so that the model ends it
    bench.scheduler.respond(request, end)
    slowest, failed = requests.records()
    assert ([record.request_id for record in slowest], failed) == (["a"], [])
    assert (bench.stats.success_count, bench.stats.fail_count) == (1, 0)
    assert [response.cancel.count for response in bench.stats.snapshot().responses.values()] == [0, 0]


def test_error_of_the_model_counts_also_where_the_client_has_all_that_it_wanted(bench: Any) -> None:
    bench.build(is_decoupled=True)
    instance = bench.instance()
    [request] = bench.send("a")
    instance.finish([None])
    request.finish()
    bench.scheduler.respond(request, InferenceResponse.of_error(InternalError("it broke")))
    assert (bench.stats.success_count, bench.stats.fail_counts["BACKEND"]) == (0, 1)


def test_request_that_was_given_up_is_not_finished_later(bench: Any) -> None:
    bench.build(is_decoupled=True)
    [request] = bench.send("a")
    request.cancel()
    request.finish()
    assert request.is_given_up


def test_stream_with_an_error_inside_counts_as_answered_and_is_told_with_it(bench: Any) -> None:
    requests = RecentRequests(clock=bench.world.clock)
    bench.build(is_decoupled=True)
    bench.stats.watch = requests.watch(bench.stats)
    instance = bench.instance()
    [request] = bench.send("a")
    instance.finish([None])
    for number in range(2):
        bench.scheduler.respond(request, InferenceResponse([], InternalError(f"error {number}"), is_final=False))
        bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    bench.scheduler.respond(request, InferenceResponse.final_mark())
    _, failed = requests.records()
    assert [(record.reason, record.message) for record in failed] == [("BACKEND", "error 0")]
    assert (bench.stats.success_count, bench.stats.fail_count) == (1, 0)


def test_stream_that_has_an_error_inside_and_is_finished_well_is_answered_well(bench: Any) -> None:
    requests = RecentRequests(clock=bench.world.clock)
    bench.build(is_decoupled=True)
    bench.stats.watch = requests.watch(bench.stats)
    instance = bench.instance()
    [request] = bench.send("a")
    instance.finish([None])
    bench.scheduler.respond(request, InferenceResponse([], is_final=False))
    request.finish()
    bench.scheduler.respond(request, InferenceResponse([], CancelledError("it was told to end"), is_final=False))
    bench.scheduler.respond(request, InferenceResponse.final_mark())
    assert requests.records()[1] == []
