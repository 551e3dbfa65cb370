"""The words that stand in for hardware."""

from __future__ import annotations

import pytest

from trireme.core.errors import InvalidArgumentError
from trireme.devices.device_spec import simulated_devices
from trireme.devices.inventory import discover


def test_every_kind_has_its_form() -> None:
    devices = simulated_devices("cuda:2@80GiB, hpu:1,neuron:2x4")
    assert [device.label for device in devices] == ["cuda:0", "cuda:1", "hpu:0", "neuron:0", "neuron:1"]
    assert [device.memory_bytes for device in devices] == [80 << 30, 80 << 30, None, None, None]
    assert [device.units for device in devices] == [(), (), (0,), (0, 1, 2, 3), (4, 5, 6, 7)]
    assert [device.is_exclusive for device in devices] == [False, False, True, True, True]
    assert all(device.is_simulated for device in devices)
    assert len({device.uuid for device in devices}) == 5


def test_parts_of_one_kind_add_up() -> None:
    devices = simulated_devices("cuda@1.5TiB,cuda:1@512MiB")
    assert [(device.index, device.memory_bytes) for device in devices] == [(0, 3 << 39), (1, 512 << 20)]


def test_cpu_is_no_accelerator() -> None:
    assert simulated_devices("cpu") == []
    assert simulated_devices("none") == []


@pytest.mark.parametrize(
    ("spec", "part", "why"),
    [
        ("cuda:2,tpu:1", "tpu:1", "is not a device"),
        ("cuda:two", "cuda:two", "is not a device"),
        ("hpu:-1", "hpu:-1", "is not a device"),
        ("cuda:1,", "", "is not a device"),
        ("cuda:0", "cuda:0", "must count between 1 and 1024"),
        ("cuda:9999", "cuda:9999", "must count between 1 and 1024"),
        ("cuda:2x4", "cuda:2x4", "gives cores"),
        ("neuron:2x0", "neuron:2x0", "gives cores"),
        ("cuda:1@24GB", "cuda:1@24GB", "is not a device"),
        ("cuda:\u0663", "cuda:\u0663", "is not a device"),
        ("cuda:1@0GiB", "cuda:1@0GiB", "gives a device no memory"),
        ("cuda:1@99999999999TiB", "cuda:1@99999999999TiB", "gives a device no memory, or more"),
    ],
)
def test_malformed_part_is_named_with_the_valid_forms(spec: str, part: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        simulated_devices(spec)
    assert refusal.value.message.startswith(f"'{part}' of --devices (or TRIREME_DEVICES) '{spec}' {why}")
    assert "neuron:<devices>x<cores of each>" in refusal.value.message


def test_flag_comes_before_the_variable() -> None:
    environ = {"TRIREME_DEVICES": "hpu:3"}
    assert len(discover(None, environ).of_kind("hpu")) == 3
    assert discover("cuda:1", environ).described() == "cpu, cuda:0"
    assert discover("cuda:1", environ).gpu_count == 1
