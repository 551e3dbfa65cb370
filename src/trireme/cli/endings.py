"""How a command ends: its exit code after help, a mistake, Ctrl+C, or where its output has no reader or no room."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from trireme.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    import argparse

_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class CommandEnded(Exception):
    """There is nothing to run: help was asked for, or the options cannot be used."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str], misuse_code: int = 1) -> argparse.Namespace:
    """The words of a command line; raises CommandEnded after help, and with this code after a mistake."""
    try:
        return parser.parse_intermixed_args(list(arguments))
    except SystemExit as end:
        raise CommandEnded(misuse_code if end.code else 0) from None


def exit_code_of(run: Callable[[], int]) -> int:
    """That of the process: what the command says, unless somebody ended it."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except CommandEnded as end:
        return end.exit_code
    except BrokenPipeError:  # whoever read the output has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"The output, or a file of it, cannot be written: {error.strerror}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again while the process ends
        return INTERRUPTED


@contextmanager
def cleaning_up_behind_signals() -> Iterator[None]:
    """Takes away what is unfinished where the process is told to end, or its terminal is closed, as it does behind
    Ctrl+C."""

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    numbers = [number for number in _ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup asks
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
