"""The parameter `device` of a model's configuration, which chooses over the kinds of its instance groups."""

from __future__ import annotations

import re
from typing import NamedTuple

from trireme.config.message import ConfigMessage
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

NAME = "device"
_CHOICE = re.compile(r"(cpu|cuda|gpu|hpu|neuron)(?::(\d+)(?:-(\d+))?)?")
_LOOKS_LIKE_OURS = re.compile(r"(cuda|gpu|hpu|neuron)\s*:.*|cpu\s*:(?!\d+$).*")
"""One of our devices with a number behind it; `cpu:0` is not, since torch knows it and a model.py may want it."""
_UNDECIDED = ("", "auto")
_PREFERENCE = re.compile(r"hpu\s*(,\s*(cuda|gpu)\s*)?(,\s*cpu\s*)?")
"""A Gaudi if there is one, else what stands behind it; by itself it is no preference."""


class DeviceChoice(NamedTuple):
    """A device, or a range of NeuronCores."""

    kind: str
    """`cpu`, `cuda`, `hpu` or `neuron`."""
    first: int | None
    """None: any."""
    last: int | None
    """The same as the first where there is no range."""


def device_choice(message: ConfigMessage) -> DeviceChoice | None:
    """What the parameter says; None where it says nothing. A model.py may use the name for something of its own, so
    for the python backend a word that is not ours is left to it. Raises InvalidArgumentError for one of our devices
    with a wrong number, and for other backends for every value that is not ours."""
    if NAME not in message.parameters:
        return None
    text = message.parameters[NAME].string_value.strip().lower()
    if text in _UNDECIDED or _is_preference(text):
        return None
    match = _CHOICE.fullmatch(text)
    choice = None if match is None else _choice(*match.groups())
    if choice is None and (message.backend != "python" or _LOOKS_LIKE_OURS.fullmatch(text)):
        raise InvalidArgumentError(
            f"parameter '{NAME}' of model '{message.name}' is '{text}'; it must be cpu, cuda, cuda:<n>, hpu, hpu:<n>, "
            "neuron, neuron:<core>, neuron:<first core>-<last core>, auto, or a preference: hpu,cuda,cpu"
        )
    return choice


def device_preference(message: ConfigMessage) -> tuple[str, ...]:
    """The kinds of a value such as `hpu,cuda,cpu`, the best first: an instance gets a Gaudi where the server has some,
    and otherwise what its group says. Empty for any other value."""
    text = message.parameters[NAME].string_value.strip().lower() if NAME in message.parameters else ""
    return tuple(kind.strip().replace("gpu", "cuda") for kind in text.split(",")) if _is_preference(text) else ()


def apply_device_parameter(message: ConfigMessage) -> None:
    """Gives every instance group the kind that the chosen device has, in place."""
    choice = device_choice(message)
    preference = device_preference(message)
    if preference and "cuda" not in preference:
        choice = DeviceChoice("cpu", None, None)
    if choice is None:
        return
    kinds = model_config_pb2.ModelInstanceGroup
    for group in message.instance_group:
        if choice.kind == "cuda":
            group.kind = kinds.KIND_GPU
            if choice.first is not None:
                group.gpus[:] = [choice.first]
        else:
            group.kind = kinds.KIND_CPU if choice.kind == "cpu" else kinds.KIND_MODEL
            del group.gpus[:]


def _is_preference(text: str) -> bool:
    return "," in text and _PREFERENCE.fullmatch(text) is not None


def _choice(kind: str, first: str | None, last: str | None) -> DeviceChoice | None:
    kind = "cuda" if kind == "gpu" else kind
    if first is None:
        return DeviceChoice(kind, None, None)
    if kind == "cpu" or (last is not None and (kind != "neuron" or int(last) < int(first))):
        return None
    return DeviceChoice(kind, int(first), int(last or first))
