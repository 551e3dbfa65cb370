"""Errors of an ensemble's steps, in the words of its client."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.model_config import EnsembleStepConfig, TensorConfig
from trireme.core.errors import ErrorKind, InternalError, InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.ensemble.client_names import client_names, in_clients_names
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler

STEPS = (
    EnsembleStepConfig("before", -1, {"QUERY": "text", "LENGTH": "max_tokens"}, {"IDS": "_ids", "LENGTH": "_length"}),
    EnsembleStepConfig(
        "engine", -1, {"ids": "_ids", "output_len": "_length", "heat": "temperature", "seed": "seed"}, {"tokens": "OUT"}
    ),
)
INPUTS = ("text", "max_tokens", "temperature", "seed")


@pytest.fixture
def config(config_of: Any) -> Any:
    return config_of(
        name="pipe",
        platform="ensemble",
        backend="",
        inputs={name: TensorConfig(name, "UINT8", (-1,)) for name in INPUTS},
        outputs={"OUT": TensorConfig("OUT", "UINT8", (-1,))},
        ensemble_steps=STEPS,
    )


def told(config: Any, *, refuse_at_once: bool, error: ServingError, **parameters: int) -> tuple[str, ErrorKind]:
    """What a client is told when the engine of its ensemble refuses."""
    answers: list[InferenceResponse] = []

    class Models:
        """What the steps run on: one that answers, and one that refuses."""

        def infer(self, request: InferenceRequest) -> None:
            if request.model_name == "before":
                outputs = [Tensor(name, "UINT8", (1,), b"a") for name in ("IDS", "LENGTH")]
                request.respond(InferenceResponse(outputs, is_final=True))
            elif refuse_at_once:
                raise error
            else:
                request.respond(InferenceResponse.of_error(error))

    scheduler = EnsembleScheduler(config, ModelStats("pipe", 1), Models())
    inputs = {name: Tensor(name, "UINT8", (1,), b"a") for name in INPUTS}
    request = InferenceRequest("pipe", "", "", inputs, answers.append)
    request.parameters = dict(parameters)
    scheduler.enqueue(request)
    [answer] = answers
    assert answer.error is not None
    return answer.error.message, answer.error.kind


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_step_refuses_is_told_by_the_names_that_the_client_sent(config: Any, at_once: bool) -> None:
    error = InvalidArgumentError("'output_len' must be at least 1, found 0")
    assert told(config, refuse_at_once=at_once, error=error) == (
        "in ensemble 'pipe', 'max_tokens' ('output_len' of 'engine') must be at least 1, found 0",
        ErrorKind.INVALID_ARGUMENT,
    )


def test_what_is_not_the_clients_mistake_is_told_as_it_is(config: Any) -> None:
    error = InternalError("KeyError: 'output_len'")
    assert told(config, refuse_at_once=False, error=error) == (
        "in ensemble 'pipe', KeyError: 'output_len'",
        ErrorKind.INTERNAL,
    )


def test_tensors_are_followed_to_inputs_through_steps_that_keep_their_names(config: Any) -> None:
    assert client_names(config, 0) == {"QUERY": "text", "LENGTH": "max_tokens"}
    assert client_names(config, 1) == {"output_len": "max_tokens", "heat": "temperature"}  # IDS are made of the text


def test_the_steps_name_stands_behind_the_first_place_alone() -> None:
    names = {"heat": "temperature", "a.b": "c"}
    message = "model's 'heat' is 3, and 'a.b' 4: make 'heat' less than 'seed' and heat"
    assert in_clients_names(message, names, "engine") == (
        "model's 'temperature' ('heat' of 'engine') is 3, and 'c' ('a.b' of 'engine') 4: make 'temperature' less than "
        "'seed' and heat"
    )
    assert in_clients_names(message, {}, "engine") == message


def test_of_ensembles_in_ensembles_the_clients_name_and_the_last_steps_are_told() -> None:
    told = "'heat' is 3: make 'heat' less than 'seed'"
    for step, names in [
        ("engine", {"heat": "temperature", "seed": "number"}),
        ("inner", {"temperature": "temp", "heat": "another of the inner one's"}),
        ("middle", {"temp": "warmth"}),
    ]:
        told = f"in ensemble 'one', {in_clients_names(told, names, step)}"
    assert told.rpartition("'one', ")[2] == (
        "'warmth' ('heat' of 'engine') is 3: make 'warmth' less than 'number' ('seed' of 'engine')"
    )


def test_a_name_that_the_inner_ensemble_does_not_change_is_told_with_it() -> None:
    assert in_clients_names("'heat' is 3", {"heat": "temp"}, "inner") == "'temp' ('heat' of 'inner') is 3"


def test_a_name_that_the_client_sent_as_a_parameter_stays_and_the_ensembles_stands_behind_it(config: Any) -> None:
    error = InvalidArgumentError("'output_len' came as a parameter; 'output_len' is a tensor, and 'heat' is another")
    assert told(config, refuse_at_once=False, error=error, output_len=3)[0] == (
        "in ensemble 'pipe', 'output_len' (here it is called 'max_tokens') came as a parameter; 'output_len' is a "
        "tensor, and 'temperature' ('heat' of 'engine') is another"
    )


def test_of_ensembles_in_ensembles_the_outermost_name_of_what_came_as_a_parameter_is_told() -> None:
    told = "'heat' came as a parameter, not 'seed'"
    for step, names in [
        ("engine", {"heat": "temperature", "seed": "number"}),
        ("inner", {"temperature": "temp", "heat": "another of the inner one's"}),
        ("middle", {"temp": "warmth"}),
    ]:
        told = in_clients_names(told, names, step, {"heat"})
    assert told == "'heat' (here it is called 'warmth') came as a parameter, not 'number' ('seed' of 'engine')"


@pytest.mark.parametrize(
    "message",
    [
        "'mode' must be 'sampling' or 'greedy', found 'heat'",
        "unexpected size, got 'heat'",
        "'mode' is 'heat', which nobody knows",
        "input 'mode' is too long for model 'heat'",
        "in ensemble 'heat', 'mode' is too long",
    ],
)
def test_what_is_quoted_and_no_name_of_a_tensor_stays(message: str) -> None:
    wanted = message.replace("'mode'", "'how' ('mode' of 'engine')")
    assert in_clients_names(message, {"heat": "temperature", "mode": "how"}, "engine") == wanted
