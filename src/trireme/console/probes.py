"""What the console asks of rooms that it does not know: memory and processor time of workers, devices, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trireme.core.ports import Backend


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device and how busy it is; None where it does not tell."""

    label: str
    name: str
    kind: str
    is_simulated: bool
    utilization: float | None
    """Between 0 and 1."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class LimitState:
    """One of the server's limits and how full it is."""

    name: str
    flag: str
    used: float
    limit: float | None
    """None where there is none."""
    unit: str = ""
    """`bytes`, or empty for a number of things."""


@dataclass(frozen=True, slots=True)
class FlagState:
    """An option of the server as it is in force."""

    flag: str
    group: str
    value: str
    is_given: bool
    """Whether it differs from what happens without it."""
    help: str


@dataclass(frozen=True, slots=True)
class Probes:
    """Each is called on the event loop's thread and returns at once."""

    resident_bytes: Callable[[Backend], int]
    """The memory of a model's processes."""
    cpu_seconds: Callable[[Backend], float]
    """The processor time that they have used."""
    devices: Callable[[], Sequence[DeviceState]]
    """Accelerators."""
    limits: Callable[[], Sequence[LimitState]]
    """What the server may use, and uses."""
    devices_in_use: Callable[[Backend], Sequence[str]] = lambda backend: ()
    """By label those that a model's processes say they compute on; none where they do not say."""
    flags: Sequence[FlagState] = ()
    """All options, without secrets."""
    grpc_port: int | None = None
    """Where streams can be asked for with Triton's client; None where gRPC is switched off."""
    grpc_has_tls: bool = False
    """Whether they are asked for over TLS."""
    versions: Sequence[tuple[str, str]] = ()
    """What the server is made of: names and versions."""
