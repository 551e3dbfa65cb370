"""Which device each instance of a model is to run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trireme.backends.python.placement import device_requests, names_hpu, placements_of
from trireme.config.model_config import ModelConfig
from trireme.config.normalise import normalise_instance_groups
from trireme.core.errors import InvalidArgumentError
from trireme.devices.inventory import discover
from trireme.devices.ownership import DeviceRequest
from trireme.proto import model_config_pb2

GPU = model_config_pb2.ModelInstanceGroup.KIND_GPU
CPU = model_config_pb2.ModelInstanceGroup.KIND_CPU
MODEL = model_config_pb2.ModelInstanceGroup.KIND_MODEL
EVERYTHING = "cuda:2,hpu:2,neuron:2x4"


def wanted(
    spec: str, *groups: dict[str, Any], source: Path | None = None, backend: str = "python", **parameters: str
) -> list[DeviceRequest]:
    inventory = discover(spec, {})
    message = model_config_pb2.ModelConfig(name="m", backend=backend, instance_group=list(groups))
    for name, value in parameters.items():
        message.parameters[name].string_value = value
    normalise_instance_groups(message, inventory.gpu_count)
    config = ModelConfig.from_message(message)
    return list(device_requests(config, placements_of(config), inventory, source).values())


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
    assert wanted("cpu", two, **cores) == [DeviceRequest(), DeviceRequest()]
    assert wanted("neuron:2x4", two, device="cpu", **cores) == [DeviceRequest(), DeviceRequest()]
    with pytest.raises(InvalidArgumentError, match="has 3 instances for NeuronCores 0 to 1"):
        wanted("neuron:2x4", {"kind": MODEL, "count": 3}, device="neuron:0-1")


def test_range_beyond_any_machine_is_refused_and_not_counted_out() -> None:
    with pytest.raises(InvalidArgumentError, match="NeuronCores 0 to 99999999999, and no machine has so many"):
        wanted("neuron:2x4", {"kind": MODEL}, device="neuron:0-99999999999")
    with pytest.raises(InvalidArgumentError, match="no machine has so many"):
        wanted("neuron:2x4", NEURON_CORE_START_INDEX="0", NEURON_CORE_END_INDEX="99999999999")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import habana_frameworks.torch.core as htcore", True),
        ("from optimum.habana.utils import set_seed", True),
        ("class args:\n    device = 'hpu'", True),
        ('model.to("hpu:0")', True),
        ("# runs on a CPU, hpus are elsewhere", False),
    ],
)
def test_code_gives_gaudi_away(tmp_path: Path, code: str, expected: bool) -> None:
    (tmp_path / "utils.py").write_text(code)
    (tmp_path / "model.py").write_text("import utils\n")
    assert names_hpu(tmp_path) is expected
    on_cpu = [DeviceRequest("hpu")] if expected else [DeviceRequest()]
    assert wanted("hpu:1", {"kind": CPU}, source=tmp_path) == on_cpu
    assert wanted("cpu", {"kind": CPU}, source=tmp_path) == [DeviceRequest()]
    assert wanted(EVERYTHING, {"kind": GPU, "gpus": [0]}, source=tmp_path) == [DeviceRequest("cuda", 0)]
