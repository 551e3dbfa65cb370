"""Ensembles on their own, and against the models they are composed of."""

from __future__ import annotations

import pytest

from trireme.config.message import ConfigMessage
from trireme.config.normalise import normalise
from trireme.config.text.pbtxt import parse_text
from trireme.config.validation.ensemble_links import resolve_ensemble
from trireme.config.validation.stages import validate_poll
from trireme.core.errors import InvalidArgumentError


def step(model: str, inputs: str, outputs: str) -> str:
    """`inputs` and `outputs` as `I=x J=y`: the model's tensor, then the ensemble's."""

    def entries(field: str, pairs: str) -> str:
        split = [pair.split("=") for pair in pairs.split()]
        return " ".join(f'{field} {{ key: "{key}" value: "{value}" }}' for key, value in split)

    return (
        f'step {{ model_name: "{model}" model_version: -1 {entries("input_map", inputs)} '
        f"{entries('output_map', outputs)} }} "
    )


def ensemble(
    *steps: str,
    inputs: str = "x",
    outputs: str = "y",
    extra: str = "",
    max_batch_size: int = 4,
    data_type: str = "TYPE_FP32",
    dims: str = "[2]",
) -> ConfigMessage:
    tensors = "".join(f'input {{ name: "{name}" data_type: {data_type} dims: {dims} }} ' for name in inputs.split())
    tensors += "".join(f'output {{ name: "{name}" data_type: {data_type} dims: {dims} }} ' for name in outputs.split())
    message = parse_text(
        f'name: "E" platform: "ensemble" max_batch_size: {max_batch_size} {tensors} {extra} '
        f"ensemble_scheduling {{ {''.join(steps)} }}",
        "p",
    )
    normalise(message)
    return message


def complaint(message: ConfigMessage) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        validate_poll(message, includes_io=False)
    return caught.value.message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ensemble(), "must specify 'step' for ensemble 'E'"),
        (ensemble(step("", "I=x", "O=y")), "must specify 'model_name' in step 0 of ensemble 'E'"),
        (ensemble(step("a", "", "O=y")), "must specify 'input_map' in step 0 of ensemble 'E'"),
        (ensemble(step("a", "I=x", "")), "must specify 'output_map' in step 0 of ensemble 'E'"),
        (ensemble(step("a", "I=x", "O=y"), extra="instance_group { }"),
         "instance group should not be specified for ensemble 'E'"),
        (ensemble(step("a", "I=x", "O=y"), extra="optimization { }"),
         "optimization should not be specified for ensemble 'E'"),
        (ensemble(step("a", "I=x", "O=y"), extra="model_warmup { }"),
         "model_warmup can not be specified for ensemble 'E'"),
        (ensemble(step("a", "I=x", "O=y"), step("a", "I=x", "O=y")),
         "ensemble tensor 'y' can appear in an output map only once for ensemble 'E' step 1"),
        (ensemble(step("a", "I=x", "O=y"), inputs="x z"), "ensemble input 'z' for ensemble E' is not used"),
        (ensemble(step("a", "I=x", "O=y"), outputs="y z"), "ensemble output 'z' for ensemble E' is not used"),
        (ensemble(step("a", "I=zz", "O=y"), step("a", "I=x", "O=k")),
         "output 'y' for ensemble 'E' is not written: at least one of its depending tensors, 'zz', is not connected"),
        (ensemble(step("a", "I=x", "O=y"), step("a", "I=x", "O=k")), "ensemble tensor 'k' is unused in ensemble 'E'"),
        (ensemble(step("a", "I=x", "O=y"), step("a", "I=k", "O=l"), step("a", "I=l", "O=k")),
         "ensemble tensor 'k' is unused in ensemble 'E'"),
    ],
)  # fmt: skip
def test_an_ensemble_is_checked_when_read(message: ConfigMessage, expected: str) -> None:
    assert complaint(message) == expected


def test_steps_belong_to_ensembles_and_ensembles_have_steps() -> None:
    model = parse_text('name: "m" backend: "python" ensemble_scheduling { }', "p")
    normalise(model)
    assert complaint(model) == "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble"
    bare = parse_text('name: "E" platform: "ensemble"', "p")
    normalise(bare)
    assert complaint(bare) == "ensemble scheduling must be set for ensemble E whose platform is ensemble"


def test_the_order_of_steps_does_not_matter() -> None:
    validate_poll(ensemble(step("a", "I=p", "O=y"), step("a", "I=x", "O=p")), includes_io=False)


def model(
    name: str,
    data_type: str = "TYPE_FP32",
    dims: str = "[2]",
    max_batch_size: int = 4,
    inputs: str = "I",
    outputs: str = "O",
    extra: str = "",
) -> ConfigMessage:
    tensors = "".join(f'input {{ name: "{one}" data_type: {data_type} dims: {dims} }} ' for one in inputs.split())
    tensors += "".join(f'output {{ name: "{one}" data_type: {data_type} dims: {dims} }} ' for one in outputs.split())
    return parse_text(f'name: "{name}" max_batch_size: {max_batch_size} {tensors} {extra}', "p")


DECOUPLED = "model_transaction_policy { decoupled: true }"
MODELS = {
    "a": model("a"),
    "b": model("b", data_type="TYPE_INT32"),
    "w": model("w", dims="[3]"),
    "v": model("v", dims="[-1]"),
    "n": model("n", max_batch_size=0),
    "n1": model("n1", max_batch_size=0, dims="[-1, 2]"),
    "two": model("two", inputs="I J"),
    "opt": model("opt", extra='input { name: "J" data_type: TYPE_FP32 dims: [2] optional: true }'),
    "d1": model("d1", extra=DECOUPLED),
    "d2": model("d2", extra=DECOUPLED),
}
MIXED = "in ensemble E, step of model 'E' receives inputs originated from different decoupled models"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ensemble(step("nope", "I=x", "O=y")), "ensemble E contains models that are not available or ambiguous: nope"),
        (ensemble(step("a", "I=x", "O=y"), max_batch_size=5), "ensemble E allows maximum batch size 5, but it contains "
         "model a which only allows maximum batch size to be 4"),
        (ensemble(step("a", "I=x K=x", "O=y")),
         "in ensemble E, ensemble tensor x is mapping to non-existing input K in model a"),
        (ensemble(step("two", "I=x", "O=y")), "in ensemble E, input J in model two is not mapped to any "
         "ensemble tensors"),
        (ensemble(step("a", "I=x", "Z=y")), "in ensemble E, ensemble tensor y is mapped from non-existing output Z in "
         "model a"),
        (ensemble(step("b", "I=x", "O=y")), "in ensemble E, ensemble tensor x: inconsistent data type: TYPE_FP32 is "
         "inferred from model E while TYPE_INT32 is inferred from model b"),
        (ensemble(step("w", "I=x", "O=y")), "in ensemble E, ensemble tensor x: inconsistent shape: [-1,2] is inferred "
         "from model E while [-1,3] is inferred from model w"),
        (ensemble(step("a", "I=x", "O=p"), step("w", "I=p", "O=y")), "in ensemble E, ensemble tensor p: inconsistent "
         "shape: [-1,2] is inferred from model a while [-1,3] is inferred from model w"),
        (ensemble(step("d1", "I=x", "O=p"), step("two", "I=p J=x", "O=y")), MIXED),
        (ensemble(step("d1", "I=x", "O=p"), step("d2", "I=x", "O=q"), step("two", "I=p J=q", "O=y")), MIXED),
        (ensemble(step("d1", "I=x", "O=p"), step("d2", "I=p", "O=q"), step("two", "I=p J=q", "O=y")), MIXED),
        (ensemble(step("d1", "I=x", "O=y"), step("a", "I=x", "O=z"), outputs="y z"), MIXED),
    ],
)  # fmt: skip
def test_an_ensemble_must_fit_its_models(message: ConfigMessage, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve_ensemble(message, MODELS)
    assert caught.value.message == expected


@pytest.mark.parametrize(
    "message",
    [
        ensemble(step("opt", "I=x", "O=y")),
        ensemble(step("v", "I=x", "O=y")),
        ensemble(step("n", "I=x", "O=y")),
        ensemble(step("n1", "I=x", "O=y")),
        ensemble(step("a", "I=x", "O=y"), max_batch_size=0, dims="[-1, 2]"),
        ensemble(step("a", "I=x", "O=y"), extra=DECOUPLED),
    ],
)
def test_an_ensemble_of_ordinary_models_is_not_decoupled(message: ConfigMessage) -> None:
    resolved = resolve_ensemble(message, MODELS)
    assert resolved.HasField("model_transaction_policy")
    assert not resolved.model_transaction_policy.decoupled


@pytest.mark.parametrize(
    "message",
    [
        ensemble(step("d1", "I=x", "O=y")),
        ensemble(step("d1", "I=x", "O=p"), step("d2", "I=p", "O=y")),
        ensemble(step("d1", "I=x", "O=p"), step("a", "I=p", "O=y"), outputs="y p"),
        ensemble(step("d1", "I=x", "O=p"), step("a", "I=p", "O=q"), step("two", "I=p J=q", "O=y")),
    ],
)
def test_a_decoupled_step_makes_the_ensemble_decoupled(message: ConfigMessage) -> None:
    assert resolve_ensemble(message, MODELS).model_transaction_policy.decoupled
    assert not message.model_transaction_policy.decoupled
