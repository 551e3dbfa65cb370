"""An ensemble whose steps may have only so many requests at once, while a stream brings far more."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trireme.config.model_config import EnsembleStepConfig, TensorConfig
from trireme.core.request import InferenceRequest, notify_calling_steps
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler

LIMIT = 4


class Pipe:
    """`many` streams into `each`, which streams into `last`; the test answers for them."""

    def __init__(self, config: Any) -> None:
        self.calls: dict[str, list[InferenceRequest]] = {"many": [], "each": [], "last": []}
        self.answers: list[InferenceResponse] = []
        self.are_instant: set[str] = set()
        self.scheduler = EnsembleScheduler(config, ModelStats("pipe", 1), self)
        self.scheduler.enqueue(InferenceRequest("pipe", "", "r1", {"IN": tensor("IN", 0)}, self.answers.append))

    def infer(self, request: InferenceRequest) -> None:
        self.calls[request.model_name].append(request)
        if request.model_name in self.are_instant:
            self.answer(request)

    def answer(self, request: InferenceRequest) -> None:
        request.respond(InferenceResponse([tensor("y", int(request.inputs["x"].data))]))

    def stream(self, count: int) -> None:
        [request] = self.calls["many"]
        for number in range(count):
            request.respond(InferenceResponse([tensor("y", number)], is_final=False))
        request.respond(InferenceResponse.final_mark())

    @property
    def numbers(self) -> list[int]:
        return [int(answer.outputs[0].data) for answer in self.answers if answer.outputs]


def tensor(name: str, number: int) -> Tensor:
    data = b"%d" % number
    return Tensor(name, "UINT8", (len(data),), data)


@pytest.fixture
def pipe(config_of: Any) -> Pipe:
    chain = (("many", "IN", "a"), ("each", "a", "b"), ("last", "b", "OUT"))
    steps = tuple(EnsembleStepConfig(model, -1, {"x": given}, {"y": made}) for model, given, made in chain)
    return Pipe(
        config_of(
            name="pipe",
            platform="ensemble",
            backend="",
            inputs={"IN": TensorConfig("IN", "UINT8", (-1,))},
            outputs={"OUT": TensorConfig("OUT", "UINT8", (-1,))},
            ensemble_steps=steps,
            is_decoupled=True,
            max_inflight_requests=LIMIT,
        )
    )


def test_a_step_that_is_full_holds_up_those_before_it(pipe: Pipe) -> None:
    pipe.stream(20)
    assert len(pipe.calls["each"]) == LIMIT
    for index in range(2 * LIMIT):
        pipe.answer(pipe.calls["each"][index])
    assert len(pipe.calls["last"]) == LIMIT
    assert len(pipe.calls["each"]) == 2 * LIMIT, "as many wait behind a full step as it has"
    for index in range(20):
        pipe.answer(pipe.calls["last"][index])
        assert len(pipe.calls["each"]) == min(20, index + 1 + 2 * LIMIT)
        if index + 2 * LIMIT < 20:
            pipe.answer(pipe.calls["each"][index + 2 * LIMIT])
    assert pipe.numbers == list(range(20))
    assert [answer.is_final for answer in pipe.answers] == [False] * 19 + [True]


def test_a_model_may_send_as_many_responses_as_steps_have_begun(pipe: Pipe) -> None:
    [producer] = pipe.calls["many"]
    assert producer.credits == LIMIT
    credits = []
    producer.on_credit = lambda: credits.append(len(credits))
    for number in range(20):
        producer.respond(InferenceResponse([tensor("y", number)], is_final=False))
    assert len(credits) == LIMIT
    for index in range(20):
        pipe.answer(pipe.calls["each"][index])
        pipe.answer(pipe.calls["last"][index])
        assert len(credits) == min(20, index + 1 + LIMIT)
    producer.respond(InferenceResponse.final_mark())
    assert pipe.numbers == list(range(20))
    assert pipe.answers[-1].is_final


def test_what_is_held_back_and_then_answered_at_once_is_not_stacked_up(pipe: Pipe) -> None:
    pipe.stream(3_000)
    pipe.are_instant = {"each", "last"}
    for request in pipe.calls["each"][:LIMIT]:
        pipe.answer(request)
    assert sorted(pipe.numbers) == list(range(3_000))
    assert [answer.is_final for answer in pipe.answers].count(True) == 1
    assert pipe.answers[-1].is_final


def test_a_long_stream_costs_no_more_per_response_than_a_short_one(pipe: Pipe) -> None:
    pipe.stream(8_000)
    began_s = time.process_time()
    for index in range(8_000):
        pipe.answer(pipe.calls["each"][index])
        pipe.answer(pipe.calls["last"][index])
    assert len(pipe.numbers) == 8_000
    assert time.process_time() - began_s < 10, "the time grows with the square of what is held back"


def test_a_model_that_is_called_from_inside_a_step_no_longer_waits(pipe: Pipe) -> None:
    [producer] = pipe.calls["many"]
    credits: list[None] = []
    producer.on_credit = lambda: credits.append(None)
    for number in range(LIMIT + 1):
        producer.respond(InferenceResponse([tensor("y", number)], is_final=False))
    assert len(credits) == LIMIT
    inside = InferenceRequest("helper", "", "", {}, lambda response: None)
    inside.parent = pipe.calls["each"][0]
    notify_calling_steps("elsewhere", inside)
    assert (producer.credits, len(credits)) == (LIMIT, LIMIT)
    notify_calling_steps("many", inside)
    assert (producer.credits, len(credits)) == (0, LIMIT + 1)
    for number in range(LIMIT + 1, 20):
        producer.respond(InferenceResponse([tensor("y", number)], is_final=False))
    assert len(credits) == 20, "each response is taken as it comes"
    assert len(pipe.calls["each"]) == LIMIT, "steps begin no faster than before"
    producer.respond(InferenceResponse.final_mark())
    pipe.are_instant = {"each", "last"}
    for request in pipe.calls["each"][:LIMIT]:
        pipe.answer(request)
    assert sorted(pipe.numbers) == list(range(20))
    assert pipe.answers[-1].is_final


def test_what_was_learned_of_one_request_holds_for_those_after_it(pipe: Pipe) -> None:
    notify_calling_steps("many", pipe.calls["many"][0])
    for outputs in ((), ("OUT",)):
        request = InferenceRequest("pipe", "", "r2", {"IN": tensor("IN", 0)}, pipe.answers.append)
        request.requested_outputs = outputs
        pipe.scheduler.enqueue(request)
        assert pipe.calls["many"][-1].credits == 0
    pipe.calls["many"][-1].respond(InferenceResponse([tensor("y", 1)], is_final=False))
    assert pipe.calls["each"][-1].credits == LIMIT
