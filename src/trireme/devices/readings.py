"""Reads accelerators at an interval, in threads beside the event loop, and keeps the last readings."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from trireme.devices.device import Device
from trireme.devices.reading_sources import DeviceReading, ReadingSource, sources_for
from trireme.devices.tool_run import ToolError

log = logging.getLogger(__name__)

STALE_INTERVALS = 3
STALE_LEAST_S = 10.0


class DeviceReader:
    """The last readings of some devices. A source that fails is logged once, its readings are left out until it
    works again, and it is tried again at every interval."""

    def __init__(
        self, devices: Sequence[Device], interval_s: float, sources: Sequence[ReadingSource] | None = None
    ) -> None:
        self._interval_s = max(0.1, interval_s)
        self._uuids = {device.uuid for device in devices}
        self._sources = sources_for(devices, self._interval_s) if sources is None else list(sources)
        self._fixed = [
            DeviceReading(device.uuid, memory_total_bytes=device.memory_bytes)
            for device in devices
            if device.is_simulated and device.memory_bytes is not None
        ]
        self._read: dict[str, tuple[float, list[DeviceReading]]] = {}  # by source: when, and what
        self._energy_before: dict[str, float] = {}
        self._failed: set[str] = set()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """One thread for each source, so that a tool that hangs keeps no other from being asked."""
        for source in self._sources:
            thread = threading.Thread(target=self._run, args=(source,), name=f"read-{source.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ends the tools, and with them the threads."""
        self._stopped.set()
        for source in self._sources:
            source.close()

    def readings(self) -> list[DeviceReading]:
        """The last reading of every device that has one which is not too old."""
        oldest = time.monotonic() - max(STALE_LEAST_S, STALE_INTERVALS * self._interval_s)
        return self._fixed + [entry for when, entries in self._read.values() if when >= oldest for entry in entries]

    def _run(self, source: ReadingSource) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            is_read = self._read_once(source)
            if not (is_read and source.sets_pace):
                self._stopped.wait(max(0.0, self._interval_s - (time.monotonic() - began)))

    def _read_once(self, source: ReadingSource) -> bool:
        try:
            found = [self._counted(entry) for entry in source.read() if entry.uuid in self._uuids]
        except Exception as error:
            self._read.pop(source.name, None)
            self._report(source, error)
            return False
        self._read[source.name] = time.monotonic(), found
        if source.name in self._failed:
            self._failed.discard(source.name)
            log.info("devices can be read with %s again", source.name)
        return True

    def _report(self, source: ReadingSource, error: Exception) -> None:
        if source.name in self._failed or self._stopped.is_set():
            return
        self._failed.add(source.name)
        trace = None if isinstance(error, ToolError) else error
        log.warning("devices cannot be read, their metrics are left out: %s", error, exc_info=trace)

    def _counted(self, reading: DeviceReading) -> DeviceReading:
        """With the energy since the server began."""
        if reading.energy_joules is None:
            return reading
        before = self._energy_before.setdefault(reading.uuid, reading.energy_joules)
        return replace(reading, energy_joules=max(0.0, reading.energy_joules - before))
