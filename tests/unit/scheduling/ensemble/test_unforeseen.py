"""Ensembles in which something fails that nobody has foreseen: the request is answered, and the run is over."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.model_config import EnsembleStepConfig, TensorConfig
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler

MID = InferenceResponse([Tensor("y", "UINT8", (1,), b"1")])


class Pipe:
    """Two steps behind each other; the test answers for the first, and the second is refused or answers."""

    def __init__(self, config: Any) -> None:
        self.first: InferenceRequest
        self.refusal: Exception | None = None
        self.answers: list[InferenceResponse] = []
        self.stats = ModelStats("pipe", 1)
        self.scheduler = EnsembleScheduler(config, self.stats, self)

    def infer(self, request: InferenceRequest) -> None:
        if request.model_name == "one":
            self.first = request
        elif self.refusal is not None:
            raise self.refusal
        else:
            request.respond(MID)

    def send(self, respond: Any) -> None:
        inputs = {"IN": Tensor("IN", "UINT8", (1,), b"0")}
        request = InferenceRequest("pipe", "", "r1", inputs, respond)
        request.answer_stats = self.stats
        self.scheduler.enqueue(request)


@pytest.fixture
def pipe(config_of: Any) -> Pipe:
    steps = (
        EnsembleStepConfig("one", -1, {"x": "IN"}, {"y": "a"}),
        EnsembleStepConfig("two", -1, {"x": "a"}, {"y": "OUT"}),
    )
    ends = {name: {name: TensorConfig(name, "UINT8", (-1,))} for name in ("IN", "OUT")}
    config = config_of(
        name="pipe", platform="ensemble", backend="", inputs=ends["IN"], outputs=ends["OUT"], ensemble_steps=steps
    )
    return Pipe(config)


def test_a_step_that_cannot_be_begun_fails_the_request(pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    pipe.refusal = OverflowError("no such step")
    pipe.send(pipe.answers.append)
    pipe.first.respond(MID)
    [answer] = pipe.answers
    assert answer.is_final
    assert answer.error is not None
    assert answer.error.message == (
        "in ensemble 'pipe', the server failed to answer the request: OverflowError: no such step"
    )
    assert pipe.scheduler.inflight_count == 0
    assert "step 'two' of ensemble 'pipe' could not be begun" in caplog.text


def test_a_response_that_cannot_be_passed_on_is_a_failure_of_the_ensemble(pipe: Pipe) -> None:
    def respond(response: InferenceResponse) -> None:
        if response.error is None:
            raise OverflowError("no such shape")
        pipe.answers.append(response)

    pipe.send(respond)
    pipe.first.respond(MID)
    [answer] = pipe.answers
    assert answer.error is not None
    assert answer.error.message.endswith("OverflowError: no such shape")
    assert (pipe.stats.success_count, pipe.stats.error_count) == (1, 1)
    assert pipe.scheduler.inflight_count == 0
