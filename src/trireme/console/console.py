"""The console's data: the live table, a model in detail, requests, log lines, the server itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any

from trireme.console.broadcast import Broadcast, Watcher
from trireme.console.model_detail import ModelDetails
from trireme.console.probes import Probes
from trireme.console.request_content import content_of
from trireme.console.request_list import request_list
from trireme.console.sampler import Sampler
from trireme.core.clock import monotonic_ns
from trireme.core.errors import NotFoundError
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.recent.lines import RecentLines
from trireme.observe.recent.requests import RecentRequests
from trireme.server.server import InferenceServer


class Console:
    """Made where the console is switched on; used on the event loop's thread."""

    def __init__(
        self, server: InferenceServer, metrics: MetricsRegistry, probes: Probes, lines: RecentLines | None = None
    ) -> None:
        self.server = server
        self.metrics = metrics
        self.probes = probes
        self.lines = lines
        self.sampler = Sampler(server, metrics, probes)
        self._details = ModelDetails(server, metrics, self.sampler, probes.grpc_port, probes.grpc_has_tls)
        self.broadcast = Broadcast(self.sampler, self.server_state)
        self._began_ns = monotonic_ns()
        self.started_s = time.time()

    def start(self) -> None:
        """Begins to remember."""
        self.sampler.start()

    def stop(self) -> None:
        """Ends all streams; to be called before the front ends close."""
        self.broadcast.close()
        self.sampler.stop()

    def watch(self, watcher: Watcher) -> None:
        """Sends the live table until the watcher is gone."""
        self.broadcast.join(watcher)

    async def model(self, name: str, version: str) -> dict[str, Any]:
        """One model in detail; raises ServingError where there is no such version. A folder that nobody has loaded may
        not have been seen yet, so that it is looked for."""
        if not self._details.knows(name):
            await self.sampler.scanned()
        return self._details.describe(name, version)

    async def config(self, name: str, version: str) -> dict[str, Any]:
        """A model's configuration with the origin of each field, or the text of its file where it does not serve;
        raises ServingError where there is no such model."""
        details = self._details
        if not details.knows(name):
            await self.sampler.scanned()
        if not details.serves(name, version):
            return await asyncio.to_thread(details.read_file, details.folder_of(name))
        written = await asyncio.to_thread(details.read_written, details.loaded_from(name))
        return details.config(name, version, written)

    def requests(self, model: str) -> dict[str, Any]:
        """The slowest and the failed requests of a model, or of all for ""."""
        return request_list(self.metrics.requests or RecentRequests(), model)

    def content(self, number: int) -> dict[str, Any]:
        """What was in a request that a running recording has taken; raises NotFoundError."""
        requests = self.metrics.requests
        excerpt = None if requests is None else requests.excerpts.find(number)
        if excerpt is None:
            raise NotFoundError("what was in this request is not kept: the recording is over, or others took its place")
        return content_of(excerpt)

    def log_lines(self, model: str, after: int) -> list[dict[str, Any]]:
        """The last lines of the log about a model, or all for "", behind the one of that number."""
        return [] if self.lines is None else [line._asdict() for line in self.lines.about(model, after)]

    def overview(self) -> dict[str, Any]:
        """The server: what it is made of, its flags, devices and limits, and the last hour of the machine."""
        sampler = self.sampler
        devices = [asdict(device) for device in self.probes.devices()]
        for device in devices:
            device["history"] = sampler.devices.columns_of(device["label"])
        return {
            **self.server_state(),
            "started_s": self.started_s,
            "versions": [list(pair) for pair in self.probes.versions],
            "extensions": list(self.server.metadata.server().extensions),
            "flags": [asdict(flag) for flag in self.probes.flags],
            "devices": devices,
            "limits": [asdict(limit) for limit in self.probes.limits()],
            "history": {"times": sampler.machine.times(), **sampler.machine.columns_of("")},
            "sampler_s": round(sampler.busy_s, 4),
        }

    def server_state(self) -> dict[str, Any]:
        """What every event says of the server."""
        return {
            "uptime_s": round((monotonic_ns() - self._began_ns) / 1e9),
            "is_exiting": self.server.is_exiting,
            "watchers": self.broadcast.watcher_count,
            **self.sampler.machine_state(),
        }
