"""How busy accelerators are: what tools print, what is kept of it, and what becomes of failures."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

import pytest
from waiting import until

from trireme.devices import cuda, reading_sources, readings
from trireme.devices.device_spec import simulated_devices
from trireme.devices.neuron import Chip, visible_devices
from trireme.devices.nvml import NvmlProcess
from trireme.devices.reading_sources import (
    DeviceReading,
    GaudiSource,
    NeuronSource,
    NvmlSource,
    SmiSource,
    readings_of_hl_smi,
    readings_of_monitor,
    readings_of_smi,
    sources_for,
)
from trireme.devices.readings import DeviceReader
from trireme.devices.tool_run import ToolError
from trireme.observe.device_metrics import DeviceMetrics
from trireme.observe.prometheus import PageWriter

WriteTool = Callable[..., None]
GPUS = simulated_devices("cuda:2")
GPU = GPUS[0].uuid
CHIPS = [Chip(0, "NEURON-0", 32 << 30, (0, 1)), Chip(1, "NEURON-1", 32 << 30, (2, 3))]
MONITOR = {
    "neuron_runtime_data": [
        {
            "pid": 17,
            "report": {
                "neuroncore_counters": {
                    "period": 1.0,
                    "neuroncores_in_use": {
                        "0": {"neuroncore_utilization": 80.0},
                        "1": {"neuroncore_utilization": 20.0},
                    },
                    "error": "",
                },
                "memory_used": {
                    "neuron_runtime_used_bytes": {
                        "host": 610705408,
                        "neuron_device": 300,
                        "usage_breakdown": {
                            "neuroncore_memory_usage": {"0": {"constants": 100, "tensors": 50}, "1": {"tensors": 150}}
                        },
                    }
                },
            },
        }
    ]
}


class ScriptedSource:
    """Answers with one entry of a list after the other, and with the last again and again."""

    name = "scripted"
    sets_pace = False

    def __init__(self, *answers: list[DeviceReading] | Exception) -> None:
        self.answers = list(answers)
        self.read_count = 0
        self.is_closed = threading.Event()

    def read(self) -> list[DeviceReading]:
        answer = self.answers[min(self.read_count, len(self.answers) - 1)]
        self.read_count += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed.set()


def page_of(reader: DeviceReader) -> str:
    writer = PageWriter()
    DeviceMetrics(reader.readings).write(writer)
    return writer.page().decode()


def test_output_of_nvidia_smi() -> None:
    first, second = readings_of_smi("GPU-a, 37, 81559, 1024, 113.52, 700.00\nGPU-b, [N/A], 81559, 0, [N/A], [N/A]\n")
    assert first == DeviceReading("GPU-a", 0.37, 81559 << 20, 1 << 30, 113.52, 700.0)
    assert second == DeviceReading("GPU-b", None, 81559 << 20, 0)


def test_output_of_hl_smi() -> None:
    text = "uuid, utilization.aip, memory.total, memory.used, power.draw\nHL-1, 12 %, 98304 MiB, 768 MiB, 95 W\n"
    assert readings_of_hl_smi(text)[-1] == DeviceReading("HL-1", 0.12, 98304 << 20, 768 << 20, 95.0)


def test_report_of_neuron_monitor() -> None:
    devices = visible_devices(CHIPS, None)
    assert readings_of_monitor(json.dumps(MONITOR), devices) == [
        DeviceReading("NEURON-0", 0.5, 32 << 30, 300),
        DeviceReading("NEURON-1", 0.0, 32 << 30, 0),
    ]
    assert readings_of_monitor('{"neuron_runtime_data": null}', devices)[0].utilization == 0.0
    with pytest.raises(ToolError, match="neuron-monitor printed"):
        readings_of_monitor("no json", devices)


def test_tools_are_run_for_every_reading(write_tool: WriteTool) -> None:
    write_tool("nvidia-smi", "GPU-a, 37, 81559, 1024, 113.52, 700.00\n")
    write_tool("hl-smi", "HL-1, 12, 98304, 768, 95\n")
    assert SmiSource().read() == [DeviceReading("GPU-a", 0.37, 81559 << 20, 1 << 30, 113.52, 700.0)]
    assert GaudiSource().read() == [DeviceReading("HL-1", 0.12, 98304 << 20, 768 << 20, 95.0)]
    write_tool("hl-smi", "the driver is not loaded\n", code=2)
    with pytest.raises(ToolError, match="hl-smi ended with 2: the driver is not loaded"):
        GaudiSource().read()


def test_monitor_is_followed_until_it_ends(write_tool: WriteTool) -> None:
    source = NeuronSource(visible_devices(CHIPS, None), 1.0)
    with pytest.raises(ToolError, match="neuron-monitor cannot be run: No such file"):
        source.read()
    write_tool("neuron-monitor", f'{json.dumps(MONITOR)}\n{{"neuron_runtime_data": []}}\n')
    assert [source.read()[0].memory_used_bytes for _ in range(2)] == [300, 0]
    with pytest.raises(ToolError, match="neuron-monitor has ended"):
        source.read()
    source.close()


@pytest.mark.skipif(cuda.has_driver(), reason="there is a GPU here")
def test_missing_driver_is_told_by_the_reader_of_nvml() -> None:
    process = NvmlProcess()
    with pytest.raises(ToolError, match="NVML cannot be used: NVML Shared Library Not Found"):
        process.ask()
    process.close()
    source = NvmlSource()
    for _ in range(2):  # with a fresh process for every try
        with pytest.raises(ToolError):
            source.read()
    source.close()


def test_simulated_devices_have_nothing_to_read() -> None:
    assert sources_for(GPUS, 1.0) == []


def test_package_for_nvml_is_preferred_to_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.devices.cuda import Card, visible_gpus

    real = visible_gpus([Card("GPU-a", "A", None)], None)
    monkeypatch.setattr(reading_sources.nvml, "is_installed", lambda: True)
    assert [source.name for source in sources_for(real, 1.0)] == ["NVML"]
    monkeypatch.setattr(reading_sources.nvml, "is_installed", lambda: False)
    assert [source.name for source in sources_for(real, 1.0)] == ["nvidia-smi"]


def test_readings_of_known_devices_are_kept_and_energy_counts_from_the_start() -> None:
    stranger = DeviceReading("GPU-elsewhere", 0.5)
    source = ScriptedSource(
        [DeviceReading(GPU, 0.25, 100, 40, 90.0, 300.0, 1000.0), stranger],
        [DeviceReading(GPU, 0.75, 100, 60, 95.0, 300.0, 1250.5), stranger],
    )
    reader = DeviceReader(GPUS, 0.0, [source])
    reader.start()
    until(lambda: source.read_count > 2)
    assert reader.readings() == [DeviceReading(GPU, 0.75, 100, 60, 95.0, 300.0, 250.5)]
    lines = page_of(reader).splitlines()
    assert f'nv_gpu_utilization{{gpu_uuid="{GPU}"}} 0.75' in lines
    assert f'nv_gpu_memory_total_bytes{{gpu_uuid="{GPU}"}} 100' in lines
    assert f'nv_gpu_memory_used_bytes{{gpu_uuid="{GPU}"}} 60' in lines
    assert f'nv_gpu_power_usage{{gpu_uuid="{GPU}"}} 95' in lines
    assert f'nv_gpu_power_limit{{gpu_uuid="{GPU}"}} 300' in lines
    assert f'nv_energy_consumption{{gpu_uuid="{GPU}"}} 250.5' in lines
    assert "# TYPE nv_energy_consumption counter" in lines
    reader.stop()
    assert source.is_closed.is_set()


def test_failure_is_logged_once_and_leaves_the_metrics_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reading = [DeviceReading(GPU, 0.5)]
    source = ScriptedSource(reading, ToolError("the tool fell over"), ToolError("the tool fell over"), reading)
    reader = DeviceReader(GPUS, 0.0, [source])
    pages = []
    for _ in range(4):
        reader._read_once(source)
        pages.append(page_of(reader))
    assert ["nv_gpu_utilization" in page for page in pages] == [True, False, False, True]
    assert [record.getMessage() for record in caplog.records] == [
        "devices cannot be read, their metrics are left out: the tool fell over",
        "devices can be read with scripted again",
    ]


def test_old_readings_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ScriptedSource([DeviceReading(GPU, 0.5)])
    reader = DeviceReader(GPUS, 1.0, [source])
    reader._read_once(source)
    assert len(reader.readings()) == 1
    later = time.monotonic() + readings.STALE_LEAST_S + 1
    monkeypatch.setattr(readings.time, "monotonic", lambda: later)
    assert reader.readings() == []


def test_what_is_said_of_simulated_memory_is_shown() -> None:
    reader = DeviceReader(simulated_devices("hpu:1@96GiB,cuda:1"), 1.0)
    reader.start()
    assert reader.readings() == [DeviceReading("HPU-simulated-0", memory_total_bytes=96 << 30)]
    assert page_of(reader).count("\n# TYPE") == 1
    reader.stop()
