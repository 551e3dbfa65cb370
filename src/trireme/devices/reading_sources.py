"""Where readings of accelerators come from: one source for each kind, each in a process of the vendor's."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trireme.devices import cuda, gaudi, neuron, nvml
from trireme.devices.device import Device
from trireme.devices.tool_run import ToolError, csv_rows, mebibytes_of, number_of, run_tool


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What one device told at one moment; None where it does not tell."""

    uuid: str
    utilization: float | None = None
    """Between 0 and 1."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    """Used since the driver was loaded."""


class ReadingSource(Protocol):
    """Reads all devices of one kind; called by one thread."""

    name: str
    """The tool, for messages."""
    sets_pace: bool
    """Whether `read` returns when the tool has something new, instead of at once."""

    def read(self) -> list[DeviceReading]:
        """The readings of this moment; raises ToolError."""

    def close(self) -> None:
        """Ends what runs for this source; from another thread too, where `read` hangs."""


class NvmlSource:
    """GPUs, asked through NVML in a process that stays: to open NVML takes longer than to ask it."""

    name = "NVML"
    sets_pace = False

    def __init__(self) -> None:
        self._process: nvml.NvmlProcess | None = None

    def read(self) -> list[DeviceReading]:
        if self._process is None:
            self._process = nvml.NvmlProcess()
        try:
            answers = self._process.ask()
        except ToolError:
            self.close()
            raise
        return [_of_facts(facts) for facts in answers if "uuid" in facts]

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()


class SmiSource:
    """GPUs, asked with nvidia-smi, where the package for NVML is not installed."""

    name = cuda.NVIDIA_SMI
    sets_pace = False
    _QUERY = "uuid,utilization.gpu,memory.total,memory.used,power.draw,power.limit"

    def read(self) -> list[DeviceReading]:
        return readings_of_smi(
            run_tool([cuda.NVIDIA_SMI, f"--query-gpu={self._QUERY}", "--format=csv,noheader,nounits"])
        )

    def close(self) -> None:
        """Nothing stays."""


class GaudiSource:
    """Gaudis, asked with hl-smi."""

    name = gaudi.HL_SMI
    sets_pace = False
    _QUERY = "uuid,utilization.aip,memory.total,memory.used,power.draw"

    def read(self) -> list[DeviceReading]:
        return readings_of_hl_smi(run_tool([gaudi.HL_SMI, "-Q", self._QUERY, "-f", "csv,noheader,nounits"]))

    def close(self) -> None:
        """Nothing stays."""


class NeuronSource:
    """Neuron devices, from neuron-monitor, which prints a report in every period."""

    name = "neuron-monitor"
    sets_pace = True

    def __init__(self, devices: Sequence[Device], interval_s: float) -> None:
        self._devices = devices
        self._interval_s = interval_s
        self._process: subprocess.Popen[str] | None = None
        self._config: Path | None = None

    def read(self) -> list[DeviceReading]:
        process = self._process or self._start()
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
        except ValueError:  # it was closed meanwhile
            line = ""
        if not line:
            self.close()
            raise ToolError("neuron-monitor has ended")
        return readings_of_monitor(line, self._devices)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._config is not None:
            self._config.unlink(missing_ok=True)

    def _start(self) -> subprocess.Popen[str]:
        wanted = [{"type": "neuroncore_counters"}, {"type": "memory_used"}]
        config = {
            "period": f"{self._interval_s:g}s",
            "neuron_runtimes": [{"tag_filter": ".*", "metrics": wanted}],
            "system_metrics": [],
        }
        with tempfile.NamedTemporaryFile("w", prefix="neuron-monitor-", suffix=".json", delete=False) as file:
            json.dump(config, file)
        self._config = Path(file.name)
        try:
            self._process = subprocess.Popen(
                [neuron.tool_path("neuron-monitor"), "-c", file.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            self.close()
            raise ToolError(f"neuron-monitor cannot be run: {error.strerror}") from None
        return self._process


def sources_for(devices: Sequence[Device], interval_s: float) -> list[ReadingSource]:
    """What reads these devices; simulated ones have nothing to read."""
    kinds = {device.kind for device in devices if not device.is_simulated}
    sources: list[ReadingSource] = []
    if "cuda" in kinds:
        sources.append(NvmlSource() if nvml.is_installed() else SmiSource())
    if "hpu" in kinds:
        sources.append(GaudiSource())
    if "neuron" in kinds:
        sources.append(NeuronSource([device for device in devices if device.kind == "neuron"], interval_s))
    return sources


def readings_of_smi(text: str) -> list[DeviceReading]:
    """What `nvidia-smi --query-gpu` printed; raises ToolError."""
    return [
        DeviceReading(uuid, _share(usage), mebibytes_of(total), mebibytes_of(used), number_of(power), number_of(limit))
        for uuid, usage, total, used, power, limit in csv_rows(text, 6)
    ]


def readings_of_hl_smi(text: str) -> list[DeviceReading]:
    """What `hl-smi -Q` printed; raises ToolError."""
    return [
        DeviceReading(uuid, _share(usage), mebibytes_of(total), mebibytes_of(used), number_of(power))
        for uuid, usage, total, used, power in csv_rows(text, 5)
    ]


def readings_of_monitor(line: str, devices: Sequence[Device]) -> list[DeviceReading]:
    """One report of neuron-monitor, added up over processes, for each device; raises ToolError."""
    usage: dict[int, float] = {}
    memory: dict[int, int] = {}
    try:
        for runtime in json.loads(line).get("neuron_runtime_data") or ():
            report = runtime.get("report") or {}
            counters = (report.get("neuroncore_counters") or {}).get("neuroncores_in_use") or {}
            for core, counted in counters.items():
                usage[int(core)] = usage.get(int(core), 0.0) + float(counted["neuroncore_utilization"]) / 100
            used = (report.get("memory_used") or {}).get("neuron_runtime_used_bytes") or {}
            for core, parts in ((used.get("usage_breakdown") or {}).get("neuroncore_memory_usage") or {}).items():
                memory[int(core)] = memory.get(int(core), 0) + sum(map(int, parts.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"neuron-monitor printed what is not understood ({error!r})") from error
    return [_of_cores(device, usage, memory) for device in devices]


def _of_cores(device: Device, usage: Mapping[int, float], memory: Mapping[int, int]) -> DeviceReading:
    busy = sum(usage.get(core, 0.0) for core in device.units) / max(1, len(device.units))
    used = sum(memory.get(core, 0) for core in device.units)
    return DeviceReading(device.uuid, min(1.0, busy), device.memory_bytes, used)


def _of_facts(facts: Mapping[str, Any]) -> DeviceReading:
    known = DeviceReading.__slots__
    return DeviceReading(**{key: value for key, value in facts.items() if key in known})


def _share(cell: str) -> float | None:
    percent = number_of(cell)
    return None if percent is None else percent / 100
