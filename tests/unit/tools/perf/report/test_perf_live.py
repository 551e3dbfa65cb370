"""How a run stands while it runs: in place on a terminal, now and then elsewhere, nothing where nobody wants it."""

from __future__ import annotations

import io
from collections import deque

import pytest

from trireme.tools.perf.load.process import LoadState
from trireme.tools.perf.options import ReportOptions
from trireme.tools.perf.report.live import LiveView, bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def view_of(stream: io.StringIO, clock: Clock, shows: bool | None = None) -> LiveView:
    view = LiveView(ReportOptions(shows_progress=shows), stream, clock)
    view.begin("concurrency 4")
    return view


def states(view: LiveView, clock: Clock, count: int, step_s: float) -> None:
    for number in range(count):
        clock.now_s += step_s
        view.show_state(LoadState(number * 100, 4, number * 0.1, None))


def test_on_a_terminal_lines_are_drawn_over_each_other_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream, clock = Terminal(), Clock()
    view = view_of(stream, clock, shows=True)
    view.show_window(1, None)
    states(view, clock, 3, 0.5)
    text = stream.getvalue()
    assert "concurrency 4, 2 s; Ctrl+C ends" in text
    assert "200 requests/s  ██" in text
    assert "200 answered, 4 under way, this client takes 20 % of a core" in text
    assert "window 1: no request ended" in text
    assert text.count("\x1b[4A") == 2  # the second and the third time, over four lines
    view.clear()
    assert stream.getvalue().endswith("\x1b[4A\r\x1b[J")
    view.clear()
    assert stream.getvalue().endswith("\x1b[4A\r\x1b[J")


def test_a_narrow_terminal_breaks_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream, clock = Terminal(), Clock()
    states(view_of(stream, clock, shows=True), clock, 1, 1.0)
    lines = stream.getvalue().replace("\r", "").replace("\x1b[K", "").replace("\x1b[J", "").splitlines()
    assert max(map(len, lines)) <= 39


def test_elsewhere_there_is_a_line_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    view = view_of(stream, clock)
    states(view, clock, 21, 1.0)
    first, second = stream.getvalue().splitlines()
    assert first == "concurrency 4, 10 s; 900 answered, 4 under way"
    assert second == "concurrency 4, 20 s; 100 requests/s; 1900 answered, 4 under way"
    view.clear()
    assert len(stream.getvalue().splitlines()) == 2


def test_it_can_be_switched_off() -> None:
    for stream in (Terminal(), io.StringIO()):
        clock = Clock()
        states(view_of(stream, clock, shows=False), clock, 50, 1.0)
        assert stream.getvalue() == ""


def test_bars() -> None:
    assert bars(deque([0.0, 50.0, 100.0])) == " ▄█"
    assert bars(deque()) == ""
    assert bars(deque([0.0])) == ""
