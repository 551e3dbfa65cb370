"""Tables of models, and what two readings of the statistics say."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from trireme.tools.client.errors import AnswerError, UnreachableError
from trireme.tools.models.live import LiveView
from trireme.tools.models.snapshots import ModelCounts, rates_between, read_counts
from trireme.tools.models.statistics_table import statistics_table
from trireme.tools.models.tables import config_text, index_table


def entry_of(name: str, requests: int, failures: int = 0, as_text: bool = False) -> dict[str, Any]:
    """Executions of two requests each, 10 ms long, of which 4 in the queue and 5 in the model."""

    def number(value: int) -> Any:
        return str(value) if as_text else value

    def phase(milliseconds: float) -> dict[str, Any]:
        return {"count": number(requests), "ns": number(int(requests * milliseconds * 1e6))}

    return {
        "name": name,
        "version": "1",
        "last_inference": number(0),
        "inference_count": number(requests),
        "execution_count": number(requests // 2),
        "inference_stats": {
            "success": phase(10),
            "fail": {"count": number(failures), "ns": number(0)},
            "queue": phase(4),
            "compute_input": phase(0.5),
            "compute_infer": phase(5),
            "compute_output": phase(0.25),
        },
    }


def test_rates_are_what_was_added() -> None:
    before = read_counts([entry_of("m", 100)])
    now = read_counts([entry_of("m", 140, failures=10), entry_of("new", 4)])
    rates = rates_between(before, now, 2.0)
    mine = rates["m", "1"]
    assert (mine.requests_per_s, mine.inferences_per_s, mine.failures_per_s) == (25, 20, 5)
    assert (mine.added.latency_ms, mine.added.queue_ms, mine.added.compute_ms) == (10, 4, 5.75)
    assert mine.added.batch_size == 2
    assert rates["new", "1"].requests_per_s == 2


def test_counters_that_began_anew_are_not_negative() -> None:
    rates = rates_between(read_counts([entry_of("m", 100)]), read_counts([entry_of("m", 6)]), 1.0)
    assert rates["m", "1"].requests_per_s == 6


def test_idle_model_has_no_means() -> None:
    counts = ModelCounts()
    assert (counts.latency_ms, counts.queue_ms, counts.compute_ms, counts.batch_size) == (None, None, None, None)


def test_numbers_over_grpc_are_texts() -> None:
    assert read_counts([entry_of("m", 8, as_text=True)]) == read_counts([entry_of("m", 8)])


def test_statistics_as_a_table() -> None:
    lines = statistics_table([entry_of("m", 10, failures=3)], io.StringIO()).splitlines()
    cells = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert cells == ["m", "1", "10", "3", "10", "5", "2.00", "10.0", "4.00", "0.50", "5.00", "0.25", "0", "never"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_table_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    table = statistics_table([entry_of("a_model_with_a_long_name", 123456)], Terminal())
    assert max(len(line) for line in table.splitlines()) <= columns
    assert "Latency ms" in table


def test_states_are_coloured_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"name": "m", "version": "1", "state": "READY"}, {"name": "n", "state": "UNAVAILABLE", "reason": "why"}]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32mREADY\x1b[0m" in index_table(entries, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in index_table(entries, Terminal())
    assert "| n     | -       | UNAVAILABLE | why    |" in index_table(entries, io.StringIO())


def test_configuration_leaves_out_what_says_nothing() -> None:
    config = {
        "name": "m",
        "backend": "python",
        "max_batch_size": 8,
        "input": [{"name": "A", "data_type": "TYPE_STRING", "dims": [-1], "optional": True}],
        "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [2], "label_filename": "l.txt"}],
        "batch_input": [],
        "optimization": {"priority": "PRIORITY_DEFAULT", "eager_batching": False},
        "parameters": {"depth": {"string_value": "3"}},
        "dynamic_batching": {"preferred_batch_size": [4, 8], "preserve_ordering": False},
    }
    text = config_text(config, io.StringIO())
    assert "depth: 3" in text
    assert "preferred_batch_size: [4, 8]" in text
    assert "| A    | BYTES    | [-1] | optional |" in text
    assert "labels l.txt" in text
    assert "eager" not in text
    assert "preserve" not in text


class CountingServer:
    """Ten more requests at each reading; `failures` are raised in place of readings."""

    place = "http://there"

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self._count = 0

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        self._count += 10
        return [entry_of("m", self._count)]

    def index(self) -> list[dict[str, str]]:
        raise AnswerError("not for you")


def live_view(server: Any, stream: io.StringIO, is_json: bool = False) -> LiveView:
    now = iter(range(0, 100, 2))
    return LiveView(server, stream, 2.0, is_json=is_json, sleep=lambda seconds: None, clock=lambda: float(next(now)))


def test_live_view_shows_a_table_for_each_interval() -> None:
    stream = io.StringIO()
    live_view(CountingServer(), stream).run(2)
    assert stream.getvalue().count("5.0 requests/s, 0.0 errors/s") == 2
    assert "\x1b" not in stream.getvalue()


def test_live_view_as_json() -> None:
    stream = io.StringIO()
    live_view(CountingServer(), stream, is_json=True).run(1)
    (model,) = json.loads(stream.getvalue())["models"]
    assert (model["name"], model["requests_per_s"], model["latency_ms"], model["batch_size"]) == ("m", 5, 10, 2)


def test_live_view_on_a_terminal_outlives_a_restart_of_the_server() -> None:
    stream = Terminal()
    live_view(CountingServer(None, UnreachableError("no server answers")), stream).run(2)
    assert stream.getvalue().startswith("\x1b[?1049h")
    assert stream.getvalue().endswith("\x1b[?1049l")
    assert "no server answers\x1b[K\r\nreading again" in stream.getvalue()
    assert "requests/s" in stream.getvalue()


def test_live_view_in_a_script_ends_with_the_server() -> None:
    with pytest.raises(UnreachableError):
        live_view(CountingServer(None, UnreachableError("gone")), io.StringIO()).run(2)
