"""Wrong flags of commands are told with their neighbours."""

from __future__ import annotations

import pytest

from trireme.cli import main as trireme_command
from trireme.config.options.flag_parser import FlagParser, flag_suggestion


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["perf", "-m", "x", "--concurency-range", "4"], "--concurrency-range"),
        (["perf", "llm", "-m", "x", "--concurency=4"], "--concurrency"),
        (["new", "x", "--tmplate", "python"], "--template"),
        (["infer", "x", "--ulr", "y"], "--url"),
        (["models", "--ulr", "y"], "--url"),
        (["deploy", "x", "--taks", "y"], "--task"),
        (["package", "x", "--outptu", "y"], "--output"),
        (["chat", "x", "--ulr", "y"], "--url"),
        (["record", "x", "--durtion", "1"], "--duration"),
        (["replay", "x", "--sped", "2"], "--speed"),
        (["analyze", "x", "--ulr", "y"], "--url"),
        (["analyze", "profile", "--profile-model", "x"], "--profile-models"),
    ],
)
def test_command_tells_the_flag_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = trireme_command.main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    assert code != 0
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_nothing_near_and_other_errors_are_told_as_they_are() -> None:
    assert flag_suggestion("xyz", ["model", "url"]) == ""
    assert FlagParser().explained("unrecognized arguments: word") == "unrecognized arguments: word"
    assert FlagParser().explained("argument --url: expected one argument") == "argument --url: expected one argument"
