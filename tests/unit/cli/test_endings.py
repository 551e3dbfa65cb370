"""Exit codes of commands that have nothing to run, or that somebody ends."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from trireme.cli.endings import CommandEnded, exit_code_of, parsed


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--wrong"], 7)])
def test_help_and_mistakes_end_a_command_with_their_codes(words: list[str], code: int) -> None:
    with pytest.raises(CommandEnded) as ended:
        parsed(argparse.ArgumentParser("x"), words, misuse_code=7)
    assert ended.value.exit_code == code


@pytest.mark.parametrize(("error", "code"), [(CommandEnded(5), 5), (KeyboardInterrupt(), 130)])
def test_what_ends_a_command_is_its_exit_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda number, action: None)

    def run() -> int:
        raise error

    assert exit_code_of(run) == code


def test_an_output_without_room_is_told_in_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "trireme", "version"]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (
        1,
        "The output, or a file of it, cannot be written: No space left on device.\n",
    )
