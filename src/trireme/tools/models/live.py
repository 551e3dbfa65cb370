"""A view like `top` of what the models of a server do, from snapshots of its statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TextIO

from trireme.observe.terminal.appearance import line_width
from trireme.tools.client.errors import ClientError, UnreachableError
from trireme.tools.client.port import ServerClient
from trireme.tools.models.snapshots import Key, ModelCounts, Rates, rates_between, read_counts
from trireme.tools.models.statistics_table import live_table
from trireme.tools.models.tables import coloured, state_of

_BEGIN = "\x1b[?1049h\x1b[?25l"
"""The terminal's second screen, without a cursor; what was there before comes back at the end."""
_END = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """The counters at one moment."""

    at_s: float
    counts: Mapping[Key, ModelCounts]
    states: Mapping[Key, str]


class LiveView:
    """Reads every so many seconds and shows what happened between; on a terminal in place, elsewhere one table, or
    one line of JSON, after the other."""

    def __init__(
        self,
        client: ServerClient,
        stream: TextIO,
        interval_s: float,
        *,
        is_json: bool = False,
        model: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._stream = stream
        self._interval_s = interval_s
        self._is_json = is_json
        self._model = model
        self._sleep = sleep
        self._clock = clock
        self._is_screen = stream.isatty() and not is_json

    def run(self, count: int | None) -> None:
        """Until that many tables were shown, or for ever. Raises ClientError where the first reading fails; later a
        server that is away is told, and waited for."""
        before = self._read()
        self._write(_BEGIN if self._is_screen else "")
        try:
            while count is None or count > 0:
                self._sleep(self._interval_s)
                before = self._step(before)
                count = None if count is None else count - 1
        finally:
            self._write(_END if self._is_screen else "")

    def _step(self, before: CounterSnapshot) -> CounterSnapshot:
        try:
            now = self._read()
        except UnreachableError as error:
            if not self._is_screen:
                raise
            self._show(f"{error}\nreading again every {self._interval_s:g} s; Ctrl+C ends")
            return before
        rates = rates_between(before.counts, now.counts, max(now.at_s - before.at_s, 1e-9))
        if self._is_json:
            self._write(json.dumps(_document(rates, now)) + "\n")
        else:
            width = line_width(self._stream)
            table = coloured(live_table(rates, now.counts, now.states, width), self._stream)
            self._show(f"{self._title(rates)}\n{table}")
        return now

    def _read(self) -> CounterSnapshot:
        counts = read_counts(self._client.statistics(self._model, ""))
        try:
            entries = self._client.index()
        except UnreachableError:
            raise
        except ClientError:  # not everybody may see the index
            entries = []
        states = {
            (entry["name"], str(entry.get("version", ""))): state_of(entry)
            for entry in entries
            if not self._model or entry["name"] == self._model
        }
        return CounterSnapshot(self._clock(), counts, states)

    def _title(self, rates: Mapping[Key, Rates]) -> str:
        requests = sum(rate.requests_per_s for rate in rates.values())
        failures = sum(rate.failures_per_s for rate in rates.values())
        now = time.strftime("%H:%M:%S")
        return f"{self._client.place}  {now}  {requests:.1f} requests/s, {failures:.1f} errors/s"

    def _show(self, text: str) -> None:
        if not self._is_screen:
            self._write(text + "\n\n")
            return
        lines = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in text.split("\n"))
        self._write(f"{_HOME}{lines}{_REST_OF_SCREEN}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _document(rates: Mapping[Key, Rates], now: CounterSnapshot) -> dict[str, object]:
    models = [
        {
            "name": name,
            "version": version,
            "state": now.states.get((name, version), ""),
            "requests_per_s": rate.requests_per_s,
            "inferences_per_s": rate.inferences_per_s,
            "failures_per_s": rate.failures_per_s,
            "latency_ms": rate.added.latency_ms,
            "queue_ms": rate.added.queue_ms,
            "compute_ms": rate.added.compute_ms,
            "batch_size": rate.added.batch_size,
            "added": asdict(rate.added),
        }
        for (name, version), rate in rates.items()
    ]
    return {"time": time.time(), "models": models}
