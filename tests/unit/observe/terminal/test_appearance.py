"""Colour and width: a terminal's, and nobody else's."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from trireme.observe.logs import LineFormatter, LogSettings, configure, in_report, leaving_out_reported
from trireme.observe.terminal.appearance import is_coloured, line_width, painted
from trireme.observe.terminal.table import render_table


@pytest.fixture
def restored_logger() -> Iterator[None]:
    logger = logging.getLogger("trireme")
    handlers, level, propagate = logger.handlers, logger.level, logger.propagate
    yield
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


class Terminal:
    def __init__(self, is_terminal: bool = True) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_terminal_is_coloured_and_a_pipe_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_coloured(Terminal())
    assert not is_coloured(Terminal(is_terminal=False))
    monkeypatch.setenv("TERM", "dumb")
    assert not is_coloured(Terminal())


@pytest.mark.parametrize(("value", "is_painted"), [("1", False), ("0", False), ("", True)])
def test_no_color_with_any_value_is_obeyed(value: str, is_painted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    assert painted("x", "red", Terminal()) == ("\x1b[31mx\x1b[0m" if is_painted else "x")


def test_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line_width(Terminal()) == 100
    assert line_width(Terminal(is_terminal=False)) is None
    monkeypatch.setenv("COLUMNS", "5")
    assert line_width(Terminal()) == 40


def test_errors_and_warnings_stand_out_in_the_log() -> None:
    formatter = LineFormatter("default", Terminal())
    lines = {
        level: formatter.format(logging.LogRecord("trireme", level, "file.py", 1, "said", (), None))
        for level in (logging.INFO, logging.WARNING, logging.ERROR)
    }
    assert "\x1b" not in lines[logging.INFO]
    assert lines[logging.WARNING].startswith("\x1b[33mW")
    assert lines[logging.ERROR].startswith("\x1b[31mE")
    assert lines[logging.ERROR].endswith("\x1b[0m said")


@pytest.mark.usefixtures("restored_logger")
def test_reported_lines_are_left_out_for_a_while_only(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    log = logging.getLogger("trireme.anywhere")
    with leaving_out_reported():
        log.error("told elsewhere", extra=in_report("a"))
        log.error("told here")
    with leaving_out_reported(["a"]):
        log.error("told elsewhere", extra=in_report("a"))
        log.error("another", extra=in_report("b"))
    log.error("told again", extra=in_report("a"))
    assert [line.rpartition("] ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "told here",
        "another",
        "told again",
    ]


def test_table_fits_the_width_and_loses_nothing() -> None:
    status = "UNAVAILABLE: Internal: ValueError: there are no weights in this folder and none can be fetched"
    table = render_table(("Model", "Version", "Status"), [("mine", "1", status), ("a", "1", "READY")], 60)
    assert max(map(len, table.splitlines())) <= 60
    cells = [line.split("|")[3].strip() for line in table.splitlines() if line.startswith("|")]
    assert " ".join(cells) == f"Status {status} READY"
    assert "| mine  | 1       |" in table


def test_table_keeps_indentation_and_breaks_long_words() -> None:
    table = render_table(("A", "B"), [("x" * 50, "first\n  " + "y" * 50)], 50)
    assert max(map(len, table.splitlines())) <= 50
    assert table.count("x") == 50
    assert "|   yyy" in table


def test_table_without_a_width_is_as_wide_as_it_needs() -> None:
    assert "x" * 300 in render_table(("A",), [("x" * 300,)])
