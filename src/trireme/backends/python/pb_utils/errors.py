"""`TritonError` and `TritonModelException`: how a model says, and hears, that something went wrong."""

from __future__ import annotations

import enum

from trireme.backends.python.pb_utils.types import as_text
from trireme.core.errors import PROMPT_TOO_LONG

_MOST_CHARACTERS = 64 << 10
"""Of an exception's text that are told."""


class TritonModelException(Exception):
    """What pb_utils raises, and what a model may raise anywhere."""


class ErrorCode(enum.IntEnum):
    """The numbers are those of `core.errors.ErrorKind`."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """An error for one request, inside its response; not an exception."""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    __slots__ = ("_code", "_message")

    def __init__(self, message: str | bytes, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        if not isinstance(code, ErrorCode):
            raise TypeError(f"TritonError: code must be one of TritonError's codes, found {code!r}")
        self._message = as_text("TritonError: message", message)
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> ErrorCode:
        return self._code

    def _number(self) -> int:
        """The code as it crosses to the server."""
        return int(self._code)


class PromptTooLong(TritonError):
    """The refusal of a prompt that a language model has no room for, which front ends tell with a code of its own."""

    __slots__ = ()

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_ARG) -> None:
        """A model that tells it again, in words of its own, gives its code as with others."""
        super().__init__(message, code)

    def _number(self) -> int:
        return PROMPT_TOO_LONG


def error_of(number: int, message: str) -> TritonError:
    """The error that crossed as this number."""
    return PromptTooLong(message) if number == PROMPT_TOO_LONG else TritonError(message, ErrorCode(number))


def exception_text(error: BaseException) -> str:
    """`<type>: <message>`, with the notes that were added to it, then the frames of the model's code, the innermost
    first."""
    import traceback

    frames = [
        f"  {frame.filename}({frame.lineno}): {frame.name}\n"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if not _is_plumbing(frame.filename)
    ]
    text = "\n".join([f"{type(error).__name__}: {_message_of(error)}", *getattr(error, "__notes__", ())])
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}... ({len(text) - _MOST_CHARACTERS} characters more)"
    return f"{text}\n\nAt:\n{''.join(frames)}" if frames else text


def _message_of(error: BaseException) -> str:
    try:
        return str(error) or "<EMPTY MESSAGE>"
    except BaseException as failure:  # the model's own code, which is no reason to lose its process
        return f"<its text could not be made: {type(failure).__name__}>"


def _is_plumbing(path: str) -> bool:
    """Whether the file is ours or the import machinery's, of which a model's author wants no lines."""
    return path.startswith(("<frozen importlib", _BACKEND_FOLDER, _TESTING_FOLDER))


_BACKEND_FOLDER = __file__.rpartition("pb_utils")[0]
_TESTING_FOLDER = _BACKEND_FOLDER.removesuffix("backends/python/") + "testing/"
