"""What ends a command that asks a server, with its exit code."""

from __future__ import annotations

import re
from typing import Final

REFUSED: Final = 1
"""The server, or the model, answered with an error."""
UNUSABLE: Final = 2
"""The command line, or an input, cannot be used; nothing was asked of the model."""
UNREACHABLE: Final = 3
"""No server answers, or its answer broke off or took too long."""
UNKNOWN_MODEL: Final = 4
"""The server has no such model, or no such version, or it is not loaded."""

EXIT_CODES: Final = """exit codes:
  0  done
  1  the server or the model answered with an error
  2  the command line or an input cannot be used
  3  no server answers, or its answer broke off or took too long
  4  the server has no such model, or it is not loaded
  130  Ctrl+C"""


class ClientError(Exception):
    """The sentence for the user, and the exit code of the command."""

    exit_code = REFUSED


class AnswerError(ClientError):
    """What the server answered in place of what was asked for."""


class NotFoundError(AnswerError):
    """The server knows nothing at this address, be it the whole API that was asked for."""


class InputError(ClientError):
    """What was given cannot be sent."""

    exit_code = UNUSABLE


class UnreachableError(ClientError):
    """Nobody answers, or not to the end."""

    exit_code = UNREACHABLE


class TimedOutError(UnreachableError):
    """The server has the question, and may still be at work on it."""


class UnknownModelError(ClientError):
    """The model cannot be asked."""

    exit_code = UNKNOWN_MODEL


_UNKNOWN = re.compile(r"unknown model|requested model '.*' is not available|no version is available")
_ABSENT = ("is not found", "has no available versions")


def answer_error(message: str, is_not_found: bool) -> ClientError:
    """The error for what a server said; some servers answer an unknown model with another status than not found."""
    is_unknown = _UNKNOWN.search(message) or (is_not_found and any(words in message for words in _ABSENT))
    if is_unknown:
        return UnknownModelError(message)
    return NotFoundError(message) if is_not_found else AnswerError(message)
