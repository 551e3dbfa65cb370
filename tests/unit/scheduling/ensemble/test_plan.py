"""Which tensors of an ensemble a step may have to itself, memory and all."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.model_config import EnsembleStepConfig, TensorConfig
from trireme.core.tensor import HandedTensor, Tensor
from trireme.scheduling.ensemble.plan import EnsemblePlan, PlannedStep, renamed

STEPS = (
    EnsembleStepConfig("one", -1, {"x": "IN"}, {"y": "a", "z": "b"}),
    EnsembleStepConfig("two", -1, {"x": "a"}, {"y": "OUT"}),
    EnsembleStepConfig("three", -1, {"x": "b"}, {"y": "SIDE"}),
    EnsembleStepConfig("four", -1, {"x": "b", "w": "SIDE"}, {"y": "LATE"}),
)


def plan_of(config_of: Any, *outputs: str) -> EnsemblePlan:
    named = {name: TensorConfig(name, "UINT8", (-1,)) for name in ("OUT", "SIDE", "LATE")}
    inputs = {"IN": TensorConfig("IN", "UINT8", (-1,))}
    config = config_of(name="pipe", platform="ensemble", backend="", inputs=inputs, outputs=named, ensemble_steps=STEPS)
    return EnsemblePlan(config, outputs)


def step_of(plan: EnsemblePlan, model: str) -> PlannedStep:
    steps = [*plan.first_steps, *(step for consumers in plan.consumers.values() for step in consumers)]
    return next(step for step in steps if step.model_name == model)


def handed(name: str) -> HandedTensor:
    return HandedTensor(name, "UINT8", (4,), b"data", "a place")


def test_a_tensor_that_one_step_reads_keeps_its_origin(config_of: Any) -> None:
    inputs = step_of(plan_of(config_of, "OUT"), "two").gather({"a": handed("y")}, None)
    assert isinstance(inputs["x"], HandedTensor)
    assert (inputs["x"].name, inputs["x"].data, inputs["x"].origin) == ("x", b"data", "a place")


def test_a_tensor_that_two_steps_read_loses_it(config_of: Any) -> None:
    plan = plan_of(config_of, "LATE")
    for model in ("three", "four"):
        inputs = step_of(plan, model).gather({"b": handed("x"), "SIDE": handed("w")}, None)
        assert not isinstance(inputs["x"], HandedTensor)
        assert inputs["x"].data == b"data"


@pytest.mark.parametrize(("outputs", "is_kept"), [(("LATE",), True), (("LATE", "SIDE"), False)])
def test_a_tensor_that_the_client_gets_too_loses_it(config_of: Any, outputs: tuple[str, ...], is_kept: bool) -> None:
    inputs = step_of(plan_of(config_of, *outputs), "four").gather({"b": handed("z"), "SIDE": handed("y")}, None)
    assert isinstance(inputs["w"], HandedTensor) is is_kept


def test_what_the_other_step_is_not_needed_for_counts_as_read_once(config_of: Any) -> None:
    inputs = step_of(plan_of(config_of, "SIDE"), "three").gather({"b": handed("z")}, None)
    assert isinstance(inputs["x"], HandedTensor)


def test_a_tensor_that_every_iteration_of_a_stream_reads_loses_it(config_of: Any) -> None:
    values: dict[str, Tensor | None] = {"a": handed("y")}
    inputs = step_of(plan_of(config_of, "OUT"), "two").gather({**values}, values)
    assert not isinstance(inputs["x"], HandedTensor)


def test_an_output_of_the_ensemble_is_nobodys_own() -> None:
    tensor = handed("OUT")
    assert type(renamed(tensor, "OUT")) is Tensor
    plain = Tensor("OUT", "UINT8", (4,), b"data")
    assert renamed(plain, "OUT") is plain
