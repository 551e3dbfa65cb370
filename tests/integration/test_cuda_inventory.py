"""Real GPUs: found, visible as CUDA sees them, read while they work, and told to a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from trireme.devices import cuda, nvml
from trireme.devices.environment import whole_device
from trireme.devices.inventory import Device, DeviceSearch, discover
from trireme.devices.reading_sources import DeviceReading, SmiSource
from trireme.devices.readings import DeviceReader

pytestmark = pytest.mark.skipif(not cuda.has_driver(), reason="there is no NVIDIA GPU here")

WORK = """
import os, sys, time
import torch
device = torch.device(os.environ["TRIREME_DEVICE"])
matrix = torch.ones(4096, 4096, device=device)
torch.cuda.synchronize(device)
print(torch.cuda.device_count(), torch.cuda.get_device_name(device), flush=True)
deadline = time.monotonic() + float(sys.argv[1])
while time.monotonic() < deadline:
    matrix @ matrix
    torch.cuda.synchronize(device)
"""


@pytest.fixture(scope="module")
def gpus() -> tuple[Device, ...]:
    found = discover(None, {key: value for key, value in os.environ.items() if key != "TRIREME_DEVICES"})
    assert found.of_kind("cuda")
    return found.of_kind("cuda")


def until(reader: DeviceReader, is_right: Callable[[DeviceReading], bool]) -> DeviceReading:
    deadline = time.monotonic() + 30
    while True:
        for reading in reader.readings():
            if is_right(reading):
                return reading
        assert time.monotonic() < deadline, reader.readings()
        time.sleep(0.1)


def test_gpus_have_names_memory_and_distinct_uuids(gpus: tuple[Device, ...]) -> None:
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    assert all(gpu.uuid.startswith(("GPU-", "MIG-")) for gpu in gpus)
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    assert all(gpu.memory_bytes and gpu.memory_bytes > 1 << 30 for gpu in gpus)


def test_every_way_to_ask_gives_the_same_gpus(gpus: tuple[Device, ...]) -> None:
    uuids = {gpu.uuid for gpu in gpus}
    told = [card.uuid for card in cuda._ask_smi()]
    assert uuids <= set(told)
    if nvml.is_installed():
        assert [card.uuid for card in cuda._cards_of_nvml()] == told
        assert [card.memory_bytes for card in cuda._cards_of_nvml()] == [card.memory_bytes for card in cuda._ask_smi()]


def test_hidden_gpus_are_not_found() -> None:
    assert discover(None, {"CUDA_VISIBLE_DEVICES": ""}).gpu_count == 0
    assert discover(None, {"CUDA_VISIBLE_DEVICES": "0"}).gpu_count == 1


def test_search_goes_on_beside_its_owner(gpus: tuple[Device, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIREME_DEVICES", raising=False)
    began = time.perf_counter()
    search = DeviceSearch(None)
    assert time.perf_counter() - began < 0.05
    assert search.result().of_kind("cuda") == gpus


def test_nothing_of_nvml_is_imported_here() -> None:
    program = (
        "import sys; from trireme.devices.inventory import discover; discover(None); print('pynvml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_work_shows_in_the_readings(gpus: tuple[Device, ...]) -> None:
    pytest.importorskip("torch")
    variables = {**os.environ, **whole_device(gpus[0]).variables(os.environ)}
    reader = DeviceReader(gpus, 0.2)
    reader.start()
    with ExitStack() as stack:
        stack.callback(reader.stop)
        idle = until(reader, lambda reading: reading.uuid == gpus[0].uuid)
        command = [sys.executable, "-c", WORK, "6"]
        worker = stack.enter_context(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True))
        assert worker.stdout is not None
        count, name = worker.stdout.readline().strip().split(" ", 1)
        assert (int(count), name) == (len(gpus), gpus[0].name)
        busy = until(
            reader,
            lambda reading: (
                reading.uuid == gpus[0].uuid
                and (reading.utilization or 0) > 0.3
                and (reading.memory_used_bytes or 0) > (idle.memory_used_bytes or 0)
            ),
        )
        assert busy.memory_total_bytes == gpus[0].memory_bytes
        if busy.energy_joules is not None:
            assert until(reader, lambda reading: (reading.energy_joules or 0) > 0).energy_joules
        smi = {reading.uuid: reading for reading in SmiSource().read()}[gpus[0].uuid]
        assert smi.utilization is not None
        assert smi.memory_total_bytes == busy.memory_total_bytes
        assert smi.memory_used_bytes == pytest.approx(busy.memory_used_bytes, rel=0.5)
        assert worker.wait(60) == 0
