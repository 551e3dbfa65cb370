"""Watches a server while it is attacked: how long its health takes to answer, and how much memory it has."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

INTERVAL_S = 0.05


@dataclass(frozen=True)
class Seen:
    """What happened during an attack."""

    seconds: float
    longest_health_s: float
    failed_health: int
    growth_bytes: int
    """Of the server's process, at its highest."""
    left_bytes: int
    """Of that, what is still there at the end."""
    worker_left_bytes: int
    """The same of its workers."""


class Watch:
    """Asks for health over one connection every 50 ms, and looks at the memory as often."""

    def __init__(self, port: int, process_id: int) -> None:
        self._port = port
        self._process_id = process_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._longest_s = 0.0
        self._failed = 0
        self._began_s = time.monotonic()
        self._first_bytes = self._peak_bytes = resident_bytes(process_id)
        self._first_worker_bytes = worker_bytes(process_id)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def seen(self, settle_s: float) -> Seen:
        """What was seen so far, after so long a wait for what goes away by itself."""
        seconds = time.monotonic() - self._began_s
        end_s = time.monotonic() + settle_s
        while time.monotonic() < end_s and not self._is_settled():
            time.sleep(INTERVAL_S)
        left = resident_bytes(self._process_id) - self._first_bytes
        workers = worker_bytes(self._process_id) - self._first_worker_bytes
        growth = self._peak_bytes - self._first_bytes
        return Seen(seconds, self._longest_s, self._failed, growth, left, workers)

    def _is_settled(self) -> bool:
        return (
            resident_bytes(self._process_id) - self._first_bytes < 16 << 20
            and worker_bytes(self._process_id) - self._first_worker_bytes < 16 << 20
        )

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while not self._is_over.wait(INTERVAL_S):
            began_s = time.monotonic()
            try:
                connection.request("GET", "/v2/health/live")
                answer = connection.getresponse()
                answer.read()
                self._failed += answer.status != 200
            except (OSError, http.client.HTTPException):
                self._failed += 1
                connection.close()
            self._longest_s = max(self._longest_s, time.monotonic() - began_s)
            self._peak_bytes = max(self._peak_bytes, resident_bytes(self._process_id))
        connection.close()


def resident_bytes(process_id: int) -> int:
    for line in _lines(process_id, "status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def worker_bytes(process_id: int) -> int:
    """Of all processes below this one; memory that they share with it is counted there, too."""
    total = 0
    for line in _lines(process_id, f"task/{process_id}/children"):
        for child in line.split():
            total += resident_bytes(int(child)) + worker_bytes(int(child))
    return total


def _lines(process_id: int, name: str) -> list[str]:
    try:
        return Path(f"/proc/{process_id}/{name}").read_text().splitlines()
    except OSError:
        return []
