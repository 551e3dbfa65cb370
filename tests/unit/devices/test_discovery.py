"""Accelerators as the system's files and the vendors' tools show them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trireme.devices import cuda, gaudi, neuron
from trireme.devices.cuda import Card, cards_of_smi, visible_gpus
from trireme.devices.gaudi import modules_of_smi, visible_hpus
from trireme.devices.inventory import discover
from trireme.devices.neuron import chips_of_ls, cores_of, visible_devices
from trireme.devices.tool_run import ToolError

WriteTool = Callable[..., None]
A, B, C = (Card(f"GPU-{letter * 8}-0000", "NVIDIA A100", 40 << 30) for letter in "abc")
NVIDIA_SMI = """GPU-aaaaaaaa-0000, NVIDIA A100-SXM4-40GB, 40960
GPU-bbbbbbbb-0000, NVIDIA A100-SXM4-40GB, [N/A]
"""
HL_SMI = """module_id, uuid, name, memory.total [MiB]
3, 01P0-HL2080A0-15-TNPS34-01-07-09, HL-225, 98304 MiB
2, 01P0-HL2080A0-15-TNPS34-04-02-08, HL-225, 98304 MiB
"""
NEURON_LS = """[
  {"neuron_device": 1, "bdf": "00:1d.0", "connected_to": [0], "nc_count": 2, "memory_size": 34359738368,
   "neuron_processes": []},
  {"neuron_device": 0, "bdf": "00:1c.0", "connected_to": [1], "nc_count": 2, "memory_size": 34359738368,
   "neuron_processes": [{"pid": 4711, "command": "python3 app.py", "neuron_runtime_version": "2.20.11.0"}]}
]"""


def write_file(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def nvidia_files(root: Path) -> None:
    for number, letter in enumerate("ab"):
        text = (
            f"Model: \t\t NVIDIA A100\nIRQ:   \t\t 88\nGPU UUID: \t GPU-{letter * 8}-0000\nDevice Minor: \t {number}\n"
        )
        write_file(root / f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information", text)
        write_file(root / f"dev/nvidia{number}")


def gaudi_files(root: Path) -> None:
    for number, module in enumerate((7, 4)):
        write_file(root / f"dev/accel/accel{number}")
        write_file(root / f"sys/class/accel/accel{number}/device/vendor", "0x1da3\n")
        write_file(root / f"sys/class/accel/accel{number}/device/module_id", f"{module}\n")


def neuron_files(root: Path) -> None:
    for number in (0, 1):
        write_file(root / f"dev/neuron{number}")
        for core in range(4):
            write_file(root / f"sys/devices/virtual/neuron_device/neuron{number}/neuron_core{core}/info")
    write_file(root / "sys/devices/virtual/neuron_device/neuron0/info/architecture/device_name", "Inferentia\n")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [A, B, C]),
        ("", []),
        ("-1", []),
        ("2,0", [C, A]),
        ("0,7,1", [A]),
        ("0,0", [A]),
        ("GPU-bbbb", [B]),
        ("GPU-", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible: str | None, expected: list[Card]) -> None:
    devices = visible_gpus([A, B, C], visible)
    assert [device.uuid for device in devices] == [card.uuid for card in expected]
    assert [device.index for device in devices] == list(range(len(expected)))


def test_slice_of_a_gpu_is_a_device() -> None:
    (device,) = visible_gpus([A], "MIG-1234")
    assert (device.uuid, device.memory_bytes) == ("MIG-1234", None)


def test_output_of_nvidia_smi() -> None:
    assert [card.memory_bytes for card in cards_of_smi(NVIDIA_SMI)] == [40960 << 20, None]
    with pytest.raises(ToolError, match="not a table of 3 columns"):
        cards_of_smi("No devices were found\n")


def test_output_of_hl_smi() -> None:
    devices = visible_hpus(modules_of_smi(HL_SMI), None)
    assert [(device.index, device.units, device.memory_bytes) for device in devices] == [
        (0, (2,), 98304 << 20),
        (1, (3,), 98304 << 20),
    ]
    assert [device.units for device in visible_hpus(modules_of_smi(HL_SMI), "3")] == [(3,)]
    assert len(visible_hpus(modules_of_smi(HL_SMI), "all")) == 2


def test_output_of_neuron_ls() -> None:
    chips = chips_of_ls(NEURON_LS)
    assert [(chip.number, chip.cores, chip.memory_bytes) for chip in chips] == [
        (0, (0, 1), 32 << 30),
        (1, (2, 3), 32 << 30),
    ]
    assert [device.units for device in visible_devices(chips, "1-2")] == [(1,), (2,)]
    assert [device.units for device in visible_devices(chips, "3")] == [(3,)]
    for text in ("not json", "[1]", '[{"neuron_device": 0}]', '{"other": 1}'):
        with pytest.raises(ToolError, match="neuron-ls printed"):
            chips_of_ls(text)


def test_ranges_of_cores() -> None:
    assert cores_of("0-2, 5,x") == {0, 1, 2, 5}
    assert 15 in cores_of("0-99999999999")  # and it ends


def test_tools_are_asked_where_files_show_devices(write_tool: WriteTool, tmp_path: Path) -> None:
    root = tmp_path / "root"
    nvidia_files(root)
    gaudi_files(root)
    neuron_files(root)
    write_tool("nvidia-smi", NVIDIA_SMI)
    write_tool("hl-smi", HL_SMI)
    write_tool("neuron-ls", NEURON_LS)
    found = discover(None, {"CUDA_VISIBLE_DEVICES": "1"}, root)
    assert found.described() == "cpu, cuda:0, hpu:0, hpu:1, neuron:0, neuron:1"
    assert found.of_kind("cuda")[0].uuid == "GPU-bbbbbbbb-0000"
    assert [device.name for device in found.of_kind("neuron")] == ["Inferentia", "Neuron device"]
    assert not any(device.is_simulated for device in found.devices)


def test_files_do_where_tools_fail(write_tool: WriteTool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "root"
    nvidia_files(root)
    gaudi_files(root)
    neuron_files(root)
    write_tool("nvidia-smi", "NVIDIA-SMI has failed\n", code=9)
    found = discover(None, {}, root)
    assert [device.uuid for device in found.of_kind("cuda")] == ["GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"]
    assert [device.units for device in found.of_kind("hpu")] == [(4,), (7,)]
    assert [device.units for device in found.of_kind("neuron")] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert all(device.memory_bytes is None for device in found.accelerators)
    assert "nvidia-smi ended with 9: NVIDIA-SMI has failed" in caplog.text
    assert "hl-smi is not installed" in caplog.text
    assert "neuron-ls is not installed" in caplog.text


def test_container_has_the_gpus_whose_files_it_has(write_tool: WriteTool, tmp_path: Path) -> None:
    nvidia_files(tmp_path)
    (tmp_path / "dev/nvidia0").unlink()
    assert [device.uuid for device in cuda.find_gpus({}, tmp_path)] == ["GPU-bbbbbbbb-0000"]
    for path in (tmp_path / "proc/driver/nvidia/gpus").glob("*/information"):
        path.unlink()
    assert [device.uuid for device in cuda.find_gpus({}, tmp_path)] == ["GPU-nvidia1"]


def test_accelerators_of_other_makers_are_no_gaudis(tmp_path: Path) -> None:
    write_file(tmp_path / "dev/accel/accel0")
    write_file(tmp_path / "sys/class/accel/accel0/device/vendor", "0x8086\n")
    assert not gaudi.has_driver(tmp_path)


def test_machine_without_accelerators_is_known_at_once(tmp_path: Path) -> None:
    write_file(tmp_path / "dev/null")
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        found = discover(None, {}, tmp_path)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.02
    assert found.described() == "cpu"
    assert found.devices[0].core_count >= 1
    assert found.devices[0].memory_bytes is None or found.devices[0].memory_bytes > os.sysconf("SC_PAGE_SIZE")
    assert [kind.has_driver(tmp_path) for kind in (cuda, gaudi, neuron)] == [False, False, False]
