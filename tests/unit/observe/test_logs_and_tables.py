"""Lines of the log and tables in it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from trireme.core.errors import ErrorKind, ServingError
from trireme.observe.logs import LineFormatter, LogSettings, _escaped, configure
from trireme.observe.terminal.table import render_table


def record(level: int, message: str, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("trireme.x", level, "/somewhere/http_server.py", 2495, message, args, None)
    made.created, made.process = 1749151849.849066, 98
    return made


def test_default_line_has_the_form_of_the_journeys() -> None:
    line = LineFormatter("default").format(record(logging.INFO, "Started HTTPService at %s:%d", "0.0.0.0", 8000))
    assert line == "I0605 19:30:49.849066 98 http_server.py:2495] Started HTTPService at 0.0.0.0:8000"


def test_control_characters_are_escaped_and_lines_cannot_be_forged() -> None:
    hostile = "a\x1b[31m\r\0\x9b\nI0605 19:30:49.849066 98 x.py:1] forged\n2025-06-05T19:30:49Z I forged\n\tkept"
    line = LineFormatter("default").format(record(logging.ERROR, "no model '%s'", hostile))
    assert line.partition("] ")[2] == (
        "no model 'a\\x1b[31m\\r\\x00\\x9b\\nI0605 19:30:49.849066 98 x.py:1] forged"
        "\\n2025-06-05T19:30:49Z I forged\n\tkept'"
    )


def test_long_messages_are_cut() -> None:
    message = _escaped("x" * 70_000 + "\0")
    assert message == "x" * 65_536 + "... (4465 characters more)"
    assert _escaped("\x1b\t\0" * 3) == "\\x1b\t\\x00" * 3


def test_iso_line_begins_with_the_date() -> None:
    line = LineFormatter("ISO8601").format(record(logging.WARNING, "careful"))
    assert line == "2025-06-05T19:30:49Z W 98 http_server.py:2495] careful"


@pytest.mark.parametrize(
    ("level", "letter"), [(logging.DEBUG, "I"), (logging.INFO, "I"), (logging.WARNING, "W"), (logging.ERROR, "E")]
)
def test_levels_are_one_letter(level: int, letter: str) -> None:
    assert LineFormatter("default").format(record(level, "x"))[0] == letter


def test_exception_follows_its_line() -> None:
    failed = record(logging.ERROR, "failed")
    try:
        raise ValueError("why")
    except ValueError:
        failed.exc_info = sys.exc_info()
    text = LineFormatter("default").format(failed)
    assert text.splitlines()[0].endswith("] failed")
    assert text.splitlines()[-1] == "ValueError: why"


def test_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    logging.getLogger("trireme.app.application").info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("] hello\n")


def test_unwanted_levels_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    settings = LogSettings(log_info=False, log_warning=False)
    configure(settings)
    log = logging.getLogger("trireme.app.application")
    log.info("one")
    log.warning("two")
    log.error("three")
    assert capsys.readouterr().err.count("\n") == 1
    settings.update({"log_info": True, "log_error": False})
    log.debug("zero")
    log.info("four")
    log.error("five")
    assert capsys.readouterr().err.split("] ")[1:] == ["four\n"]


def test_verbose_lines_are_logged_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    settings = LogSettings()
    configure(settings)
    assert not logging.getLogger("trireme.app.application").isEnabledFor(logging.DEBUG)
    settings.update({"log_verbose_level": 1})
    logging.getLogger("trireme.app.application").debug("detail")
    assert capsys.readouterr().err.endswith("] detail\n")


def test_log_file_takes_every_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    configure(LogSettings(log_file=str(path)))
    logging.getLogger("trireme.app.application").info("one")
    logging.getLogger("trireme.app.application").error("two")
    assert [line.split("] ")[1] for line in path.read_text().splitlines()] == ["one", "two"]
    assert capsys.readouterr().err == ""


def test_bad_settings_change_nothing(tmp_path: Path) -> None:
    settings = LogSettings()
    with pytest.raises(ServingError) as refused:
        settings.update({"log_info": False, "log_format": "pretty"})
    assert refused.value.message == "invalid argument for --log_format, got: pretty"
    assert refused.value.kind is ErrorKind.UNAVAILABLE
    with pytest.raises(ServingError, match="unknown log setting"):
        settings.update({"log_info": False, "colour": True})
    with pytest.raises(ServingError, match="failed to open log file"):
        settings.update({"log_info": False, "log_file": str(tmp_path / "no" / "such" / "dir")})
    assert settings == LogSettings()


def test_table_is_as_wide_as_its_widest_cells() -> None:
    rows = [("llama2", "1", "READY"), ("qwen2", "1", "READY")]
    assert render_table(("Model", "Version", "Status"), rows).splitlines() == [
        "+--------+---------+--------+",
        "| Model  | Version | Status |",
        "+--------+---------+--------+",
        "| llama2 | 1       | READY  |",
        "| qwen2  | 1       | READY  |",
        "+--------+---------+--------+",
    ]


def test_cell_of_several_lines_leaves_the_others_blank() -> None:
    table = render_table(("Model", "Status"), [("m", "UNAVAILABLE: x\n\nAt:"), ("n", "READY")])
    assert table.splitlines()[3:] == [
        "| m     | UNAVAILABLE: x |",
        "|       |                |",
        "|       | At:            |",
        "| n     | READY          |",
        "+-------+----------------+",
    ]


def test_table_without_rows_is_its_heading_and_an_empty_frame() -> None:
    assert render_table(("Backend", "Path"), []).splitlines() == [
        "+---------+------+",
        "| Backend | Path |",
        "+---------+------+",
        "+---------+------+",
    ]
