"""Which device each instance of a model is to run on."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.backends.python.placement import device_requests, placements_of, stand_in_words
from trireme.config.model_config import ModelConfig
from trireme.config.normalise import normalise_instance_groups
from trireme.core.errors import InvalidArgumentError
from trireme.devices.cpu import find_cpu
from trireme.devices.inventory import Inventory, discover
from trireme.devices.ownership import DeviceRequest
from trireme.proto import model_config_pb2

GPU = model_config_pb2.ModelInstanceGroup.KIND_GPU
CPU = model_config_pb2.ModelInstanceGroup.KIND_CPU
MODEL = model_config_pb2.ModelInstanceGroup.KIND_MODEL
EVERYTHING = "cuda:2,hpu:2,neuron:2x4"


def wanted(
    spec: str, *groups: dict[str, Any], compat: tuple[str, ...] = (), backend: str = "python", **parameters: str
) -> list[DeviceRequest]:
    inventory = discover(spec, {})
    message = model_config_pb2.ModelConfig(name="m", backend=backend, instance_group=list(groups))
    for name, value in parameters.items():
        message.parameters[name].string_value = value
    normalise_instance_groups(message, inventory.gpu_count)
    config = ModelConfig.from_message(message)
    return list(device_requests(config, placements_of(config), inventory, compat).values())


def test_without_a_group_every_gpu_gets_an_instance_or_the_processor_does() -> None:
    assert wanted("cuda:2") == [DeviceRequest("cuda", 0), DeviceRequest("cuda", 1)]
    assert wanted("cpu") == [DeviceRequest()]


def test_groups_choose() -> None:
    groups = ({"kind": GPU, "gpus": [1], "count": 2}, {"kind": CPU}, {"kind": MODEL})
    assert wanted(EVERYTHING, *groups) == [
        DeviceRequest("cuda", 1),
        DeviceRequest("cuda", 1),
        DeviceRequest(),
        DeviceRequest(),
    ]


def test_kind_auto_is_a_gpu_where_those_named_exist() -> None:
    assert wanted("cuda:2", {"gpus": [1]}) == [DeviceRequest("cuda", 1)]
    assert wanted("cpu", {"count": 2}) == [DeviceRequest(), DeviceRequest()]
    assert wanted("cuda:2", backend="openvino") == [DeviceRequest()]
    assert wanted("cuda:2", {"kind": GPU, "gpus": [0]}, backend="openvino") == [DeviceRequest("cuda", 0)]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cpu", [DeviceRequest()]),
        ("CUDA", [DeviceRequest("cuda", 0), DeviceRequest("cuda", 1)]),
        ("gpu:1", [DeviceRequest("cuda", 1)]),
        ("cuda:1", [DeviceRequest("cuda", 1)]),
        ("hpu", [DeviceRequest("hpu")]),
        ("hpu:1", [DeviceRequest("hpu", units=(1,))]),
        ("neuron", [DeviceRequest("neuron")]),
        ("neuron:3", [DeviceRequest("neuron", units=(3,))]),
        ("neuron:2-5", [DeviceRequest("neuron", units=(2, 3, 4, 5))]),
        ("auto", [DeviceRequest("cuda", 0), DeviceRequest("cuda", 1)]),
    ],
)
def test_parameter_comes_before_groups(device: str, expected: list[DeviceRequest]) -> None:
    assert wanted(EVERYTHING, {"kind": GPU}, device=device) == expected


@pytest.mark.parametrize("device", ["cpu:1", "tpu", "my own words"])
def test_value_that_is_no_device_is_refused_unless_a_model_py_may_mean_it(device: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"parameter 'device' of model 'm' is '{device}'; it must be cpu"):
        wanted("cpu", backend="transformers", device=device)
    assert wanted("cpu", device=device) == [DeviceRequest()]


@pytest.mark.parametrize("backend", ["transformers", "python"])
@pytest.mark.parametrize("device", ["cuda:0-1", "cuda:-1", "cuda:x", "cuda:", "neuron:5-2", "hpu:one", "cpu:x"])
def test_device_with_a_wrong_number_is_refused_for_every_backend(device: str, backend: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"parameter 'device' of model 'm' is '{device}'; it must be cpu"):
        wanted("cpu", backend=backend, device=device)


def test_missing_gaudi_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"device 'hpu:4', which is not among .*: cpu, hpu:0"):
        wanted("hpu:1", device="hpu:4")


def test_range_of_cores_is_shared_out() -> None:
    two = {"kind": MODEL, "count": 2}
    shares = [DeviceRequest("neuron", units=(1, 2)), DeviceRequest("neuron", units=(3, 4))]
    assert wanted("neuron:2x4", two, device="neuron:1-5") == shares
    cores = {"NEURON_CORE_START_INDEX": "1", "NEURON_CORE_END_INDEX": "4"}
    assert wanted("neuron:2x4", two, **cores) == shares
    assert wanted("cpu", two, compat=("neuron",), **cores) == [DeviceRequest(), DeviceRequest()]
    assert wanted("neuron:2x4", two, device="cpu", **cores) == [DeviceRequest(), DeviceRequest()]
    with pytest.raises(InvalidArgumentError, match="has 3 instances for NeuronCores 0 to 1"):
        wanted("neuron:2x4", {"kind": MODEL, "count": 3}, device="neuron:0-1")


def test_range_beyond_any_machine_is_refused_and_not_counted_out() -> None:
    with pytest.raises(InvalidArgumentError, match="NeuronCores 0 to 99999999999, and no machine has so many"):
        wanted("neuron:2x4", {"kind": MODEL}, device="neuron:0-99999999999")
    with pytest.raises(InvalidArgumentError, match="no machine has so many"):
        wanted("neuron:2x4", NEURON_CORE_START_INDEX="0", NEURON_CORE_END_INDEX="99999999999")


def test_missing_cores_are_named_unless_the_cpu_may_stand_in() -> None:
    cores = {"NEURON_CORE_START_INDEX": "0", "NEURON_CORE_END_INDEX": "15"}
    with pytest.raises(InvalidArgumentError) as raised:
        wanted("cuda:1", {"kind": CPU}, **cores)
    assert "asks for NeuronCores 0 to 15" in str(raised.value)
    assert "this server has none (its devices: cpu, cuda:0). Start it with --devices=cpu" in str(raised.value)
    assert wanted("cuda:1", {"kind": CPU}, device="cpu", **cores) == [DeviceRequest()]


@pytest.mark.parametrize(
    ("spec", "words"),
    [("cpu", {"gaudi", "neuron"}), ("hpu:2", {"gaudi"}), ("cuda:1,neuron:1", {"neuron"}), ("cuda:2", set())],
)
def test_devices_that_are_said_to_be_there_let_the_cpu_stand_in(spec: str, words: set[str]) -> None:
    assert stand_in_words(discover(spec, {})) == words


def test_what_the_machine_has_lets_nothing_stand_in() -> None:
    assert stand_in_words(Inventory((find_cpu(),))) == set()


@pytest.mark.parametrize(
    ("spec", "device", "expected"),
    [
        ("hpu:1", "hpu,cuda,cpu", [DeviceRequest("hpu")]),
        ("cpu", "hpu,cuda,cpu", [DeviceRequest()]),
        ("cuda:2", "hpu, cuda, cpu", [DeviceRequest("cuda", 0), DeviceRequest("cuda", 1)]),
        ("cuda:2", "hpu,cpu", [DeviceRequest()]),
        ("cuda:1,hpu:1", "hpu,cpu", [DeviceRequest("hpu")]),
    ],
)
def test_a_preference_takes_the_first_that_is_there(spec: str, device: str, expected: list[DeviceRequest]) -> None:
    assert wanted(spec, device=device) == expected
