"""Accelerators as metrics, under the names that Triton has for GPUs, whatever their make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from trireme.observe.prometheus import PageWriter, label_text


class DeviceReading(Protocol):
    """What one device told last; None where it does not tell."""

    @property
    def uuid(self) -> str:
        """Which device."""

    @property
    def utilization(self) -> float | None:
        """Between 0 and 1."""

    @property
    def memory_total_bytes(self) -> int | None:
        """All that it has."""

    @property
    def memory_used_bytes(self) -> int | None:
        """By any process."""

    @property
    def power_watts(self) -> float | None:
        """What it draws."""

    @property
    def power_limit_watts(self) -> float | None:
        """What it may draw."""

    @property
    def energy_joules(self) -> float | None:
        """What it used since the server began."""


class _Family(NamedTuple):
    name: str
    kind: str
    help_text: str
    read: Callable[[DeviceReading], float | None]


_FAMILIES = (
    _Family("nv_gpu_utilization", "gauge", "Share of time an accelerator was busy, 0 to 1", attrgetter("utilization")),
    _Family(
        "nv_gpu_memory_total_bytes", "gauge", "Memory of an accelerator, in bytes", attrgetter("memory_total_bytes")
    ),
    _Family(
        "nv_gpu_memory_used_bytes", "gauge", "Accelerator memory in use, in bytes", attrgetter("memory_used_bytes")
    ),
    _Family("nv_gpu_power_usage", "gauge", "Power that an accelerator draws, in watts", attrgetter("power_watts")),
    _Family("nv_gpu_power_limit", "gauge", "Power that it may draw, in watts", attrgetter("power_limit_watts")),
    _Family(
        "nv_energy_consumption", "counter", "Energy used since the server began, in joules", attrgetter("energy_joules")
    ),
)


class DeviceMetrics:
    """Shows the readings that somebody else keeps; a family that no device has a value for is left out."""

    __slots__ = ("_readings",)

    def __init__(self, readings: Callable[[], Sequence[DeviceReading]]) -> None:
        self._readings = readings

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        readings = self._readings()
        for family in _FAMILIES:
            values = [(reading.uuid, value) for reading in readings if (value := family.read(reading)) is not None]
            if not values:
                continue
            writer.family(family.name, family.kind, family.help_text)
            for uuid, value in values:
                writer.sample(label_text({"gpu_uuid": uuid}), value)
