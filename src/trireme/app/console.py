"""The console that the server's options ask for: what it may ask of the other rooms, and who may look at it."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from trireme import __version__
from trireme.app.worker_memory import cpu_seconds, devices_in_use, resident_bytes
from trireme.config.options.option import OptionStatus
from trireme.config.options.server import ServerOptions, server_options
from trireme.console.console import Console
from trireme.console.probes import DeviceState, FlagState, LimitState, Probes
from trireme.devices.inventory import Inventory
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.http.endpoints.console.routes import console_routes
from trireme.frontends.http.routing import Route
from trireme.observe.logs import keep_lines
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.recent.requests import RecentRequests
from trireme.server.metadata import TRITON_LEVEL
from trireme.server.server import InferenceServer

if TYPE_CHECKING:
    from trireme.devices.readings import DeviceReader
    from trireme.observe.recent.lines import RecentLines

_PACKAGES = ("numpy", "orjson", "httptools", "hpack", "uvloop", "protobuf", "tritonclient")
_SECRET_PARTS = ("password", "passwd", "secret", "credential")
_SECRET_WORDS = frozenset(("auth", "authorization", "header", "headers", "url"))
_SECRET_ENDS = ("token", "key", "keys")
"""Of words, as `accesskey` and `authtoken` are written too; `tokens` is what models are counted in."""
_HIDDEN = "•••"


def prepare(options: ServerOptions, metrics: MetricsRegistry) -> RecentLines | None:
    """Has lines of the log kept, and single requests watched, from the first model on."""
    if not is_wanted(options):
        return None
    metrics.requests = RecentRequests()
    return keep_lines()


def is_wanted(options: ServerOptions) -> bool:
    """Whether there is a console at all."""
    return options.console != "off" and options.allow_http


def create(
    options: ServerOptions,
    server: InferenceServer,
    metrics: MetricsRegistry,
    inventory: Inventory,
    reader: DeviceReader | None,
    shared: SharedLimits,
    lines: RecentLines,
) -> Console:
    """The console of a server, which begins to remember when it is started."""
    if metrics.requests is not None:
        server.inference.on_refused = metrics.requests.refuse
        server.recorder.excerpts = metrics.requests.excerpts
    probes = Probes(
        resident_bytes=resident_bytes,
        cpu_seconds=cpu_seconds,
        devices=_devices(inventory, reader),
        devices_in_use=devices_in_use,
        limits=lambda: _limits(options, server, shared),
        flags=flag_states(options),
        grpc_port=options.grpc_port if options.allow_grpc else None,
        grpc_has_tls=options.grpc_use_ssl,
        versions=_versions(),
    )
    return Console(server, metrics, probes, lines)


def routes(options: ServerOptions, console: Console | None) -> list[Route]:
    """Its paths; for everybody where keys protect it, or where that is asked for."""
    if console is None:
        return []
    has_keys = options.api_keys is not None
    return console_routes(console, options.console == "on" or has_keys, has_keys)


def flag_states(options: ServerOptions) -> list[FlagState]:
    """Every option that works, and its value without secrets."""
    return [
        FlagState(
            entry.flag,
            entry.group,
            shown_value(entry.field_name, getattr(options, entry.field_name)),
            entry.asks_for_something(getattr(options, entry.field_name)),
            entry.help,
        )
        for entry in server_options()
        if entry.status is OptionStatus.WORKS
    ]


def shown_value(name: str, value: Any) -> str:
    """For people; what could be a secret is not shown."""
    if value is None:
        return ""
    if name in ("http_restricted_api", "grpc_restricted_protocol"):
        return ", ".join(f"{api}: {entry.header}={_HIDDEN}" for api, entry in value.items())
    return _text(value)


def _text(value: Any, key: str = "") -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if is_dataclass(value) and not isinstance(value, type):
        return _text({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(inner, str(name))}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(inner, key) for inner in value)
    return _HIDDEN if _is_secret(key) else str(value)


def _is_secret(name: str) -> bool:
    if any(part in name.lower() for part in _SECRET_PARTS):
        return True
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in _words(name))


def _words(name: str) -> list[str]:
    """The words of a name, as `api_key`, `api-key`, `apiKey`, `APIKey` and `API_KEY` have two."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.findall(r"[a-z]+", apart.lower())


def _devices(inventory: Inventory, reader: DeviceReader | None) -> Callable[[], list[DeviceState]]:
    def states() -> list[DeviceState]:
        readings = {reading.uuid: reading for reading in reader.readings()} if reader is not None else {}
        found = []
        for device in inventory.accelerators:
            reading = readings.get(device.uuid)
            found.append(
                DeviceState(
                    device.label,
                    device.name,
                    device.kind,
                    device.is_simulated,
                    reading.utilization if reading is not None else None,
                    reading.memory_used_bytes if reading is not None else None,
                    (reading.memory_total_bytes if reading is not None else None) or device.memory_bytes,
                    reading.power_watts if reading is not None else None,
                )
            )
        return found

    return states


def _limits(options: ServerOptions, server: InferenceServer, shared: SharedLimits) -> list[LimitState]:
    inflight, slots = shared.inflight, shared.slots
    waiting = [model.stats.pending_count() for model in server.registry.models.serving()]
    return [
        LimitState("Connections", "max-connections", slots.count, slots.max_count),
        LimitState("Memory of requests", "max-inflight-bytes", inflight.used_bytes, inflight.limit_bytes, "bytes"),
        LimitState(
            "Longest queue of a model", "max-queue-size", max(waiting, default=0), options.max_queue_size or None
        ),
        LimitState(
            "Shared memory regions",
            "max-shared-memory-regions",
            server.shared_memory.region_count,
            options.max_shared_memory_regions or None,
        ),
    ]


def _versions() -> list[tuple[str, str]]:
    found = [("Trireme", __version__), ("Triton protocol", TRITON_LEVEL), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    found.append(("System", f"{platform.system()} {platform.release()} {platform.machine()}"))
    found.append(("Compiled", "yes" if _is_compiled() else "no"))
    return found


def _is_compiled() -> bool:
    module = sys.modules.get("trireme.observe.stats")
    return not str(getattr(module, "__file__", "")).endswith(".py")
