"""An ensemble inside an ensemble: what its failures count as, and whom its steps must not hold up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trireme.config.model_config import EnsembleStepConfig, TensorConfig
from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler


class Repository:
    """Ensembles that find each other by name; requests to other models are kept for the test to answer."""

    def __init__(self, config_of: Any) -> None:
        self._config_of = config_of
        self._ensembles: dict[str, EnsembleScheduler] = {}
        self.stats: dict[str, ModelStats] = {}
        self.calls: dict[str, list[InferenceRequest]] = {}
        self.answers: list[InferenceResponse] = []

    def add(self, name: str, *models: str, max_inflight: int = 0) -> None:
        tensors = ["IN", *[f"t{index}" for index in range(1, len(models))], "OUT"]
        steps = tuple(
            EnsembleStepConfig(model, -1, {"IN": tensors[index]}, {"OUT": tensors[index + 1]})
            for index, model in enumerate(models)
        )
        config = self._config_of(
            name=name,
            platform="ensemble",
            backend="",
            inputs={"IN": TensorConfig("IN", "UINT8", (-1,))},
            outputs={"OUT": TensorConfig("OUT", "UINT8", (-1,))},
            ensemble_steps=steps,
            is_decoupled=True,
            max_inflight_requests=max_inflight,
        )
        self.stats[name] = ModelStats(name, 1)
        self._ensembles[name] = EnsembleScheduler(config, self.stats[name], self)

    def infer(self, request: InferenceRequest) -> None:
        ensemble = self._ensembles.get(request.model_name)
        if ensemble is not None:
            ensemble.enqueue(request)
        else:
            self.calls.setdefault(request.model_name, []).append(request)

    def send(self, name: str) -> None:
        self.infer(InferenceRequest(name, "", "r1", {"IN": Tensor("IN", "UINT8", (1,), b"x")}, self.answers.append))


def output(is_final: bool = False) -> InferenceResponse:
    return InferenceResponse([Tensor("OUT", "UINT8", (1,), b"y")], is_final=is_final)


@pytest.fixture
def repository(config_of: Any) -> Repository:
    return Repository(config_of)


def fail_at_once(request: InferenceRequest) -> None:
    request.respond(InferenceResponse.of_error(InternalError("boom")))


def fail_after_a_response(request: InferenceRequest) -> None:
    request.respond(output())
    fail_at_once(request)


def fail_before_the_end(request: InferenceRequest) -> None:
    request.respond(InferenceResponse([], InternalError("boom"), None, False))
    request.respond(InferenceResponse.final_mark())


@pytest.mark.parametrize(
    ("fail", "inner_count"), [(fail_at_once, 2), (fail_after_a_response, 2), (fail_before_the_end, 1)]
)
def test_a_request_that_fails_inside_is_counted_in_each_ensemble_as_triton_counts(
    repository: Repository, fail: Callable[[InferenceRequest], None], inner_count: int
) -> None:
    repository.add("inner", "many")
    repository.add("outer", "inner")
    repository.send("outer")
    fail(repository.calls["many"][0])
    assert [answer.error.message for answer in repository.answers if answer.error is not None] == [
        "in ensemble 'outer', in ensemble 'inner', boom"
    ]
    for name, count in (("inner", inner_count), ("outer", 2)):
        stats = repository.stats[name]
        assert stats.fail_counts == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": count}
        assert stats.success_count == 0


def test_a_model_that_an_inner_ensemble_needs_does_not_wait_for_it(repository: Repository) -> None:
    repository.add("inner", "many")
    repository.add("outer", "many", "inner", max_inflight=1)
    repository.send("outer")
    [producer] = repository.calls["many"]
    credits: list[None] = []
    producer.on_credit = lambda: credits.append(None)
    producer.respond(output())
    assert len(credits) == 2, "one for the response, one to be let go"
    for _ in range(5):
        producer.respond(output())
    assert len(credits) == 7, "it is not held up, although one step at a time runs"
    producer.respond(InferenceResponse.final_mark())
    for number in range(1, 7):
        repository.calls["many"][number].respond(output(is_final=True))
    assert len(repository.answers) == 6
    assert repository.answers[-1].is_final


def test_an_inner_ensemble_that_needs_other_models_holds_up_as_ever(repository: Repository) -> None:
    repository.add("inner", "each")
    repository.add("outer", "many", "inner", max_inflight=1)
    repository.send("outer")
    [producer] = repository.calls["many"]
    credits: list[None] = []
    producer.on_credit = lambda: credits.append(None)
    for _ in range(5):
        producer.respond(output())
    assert len(credits) == 1
