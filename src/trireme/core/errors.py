"""The one family of errors: eight kinds, equal to Triton's codes; each error writes its own sentence."""

from __future__ import annotations

import enum
from typing import Final


class ErrorKind(enum.IntEnum):
    """Triton's error codes, with their numbers."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARGUMENT = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    @property
    def label(self) -> str:
        """The code as Triton writes it in front of a message: `Invalid argument`."""
        return _LABELS[self]


_LABELS = {
    ErrorKind.UNKNOWN: "Unknown",
    ErrorKind.INTERNAL: "Internal",
    ErrorKind.NOT_FOUND: "Not found",
    ErrorKind.INVALID_ARGUMENT: "Invalid argument",
    ErrorKind.UNAVAILABLE: "Unavailable",
    ErrorKind.UNSUPPORTED: "Unsupported",
    ErrorKind.ALREADY_EXISTS: "Already exists",
    ErrorKind.CANCELLED: "Cancelled",
}


PROMPT_TOO_LONG: Final = ErrorKind.INVALID_ARGUMENT | 1 << 8
"""The number of a PromptTooLongError where errors cross processes; that of its kind is in the lowest eight bits."""


_MOST_UNFORESEEN_CHARS: Final = 1000


class ServingError(Exception):
    """What went wrong, as the client will read it, and its kind, which the front ends map to a status."""

    kind: ErrorKind = ErrorKind.UNKNOWN

    def __init__(self, message: str, kind: ErrorKind | None = None) -> None:
        super().__init__(message)
        self.message = message
        if kind is not None:
            self.kind = kind

    def described(self) -> str:
        """The form used in logs and reasons: `Invalid argument: <message>`."""
        return f"{self.kind.label}: {self.message}"

    def retold(self, message: str) -> ServingError:
        """The same error in other words: of its own class where that is made of words alone, by which front ends know
        it, else of its kind."""
        kind = type(self)
        return kind(message, self.kind) if kind.__init__ is ServingError.__init__ else ServingError(message, self.kind)

    def for_request(self, request_id: str) -> ServingError:
        """The same error, prefixed the way Triton marks errors that belong to one request."""
        return type(self)(f"[request id: {request_id or '<id_unknown>'}] {self.message}", self.kind)


class InternalError(ServingError):
    kind = ErrorKind.INTERNAL


class NotFoundError(ServingError):
    kind = ErrorKind.NOT_FOUND


class InvalidArgumentError(ServingError):
    kind = ErrorKind.INVALID_ARGUMENT


class PromptTooLongError(InvalidArgumentError):
    """A prompt is longer than the language model, or its cache, takes."""


class UnsupportedMediaError(InvalidArgumentError):
    """What was sent is of a kind that nothing here can be made of."""


class UnavailableError(ServingError):
    kind = ErrorKind.UNAVAILABLE


class QueueFullError(UnavailableError):
    """The model's queue takes no more at the moment; the same request may be taken a little later."""


class LeaseEndedError(UnavailableError):
    """The request waited in a process that has lost the model's workers, and did not run; no client is told this."""

    def __init__(self) -> None:
        super().__init__("the model's workers are in another process by now")


class NoRoomError(UnavailableError):
    """What is in flight leaves no room for the answer."""


class AccessError(UnavailableError):
    """The client may not do this, or not now; nothing was done for the request."""


class UnauthenticatedError(AccessError):
    """No key was sent, or one that nobody has."""


class ForbiddenError(AccessError):
    """The key is known and not meant for this."""


class QuotaExceededError(AccessError):
    """The key is known and has had its share; `retry_after_s` is when it has one again."""

    def __init__(self, message: str, kind: ErrorKind | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, kind)
        self.retry_after_s = retry_after_s


class NotReadyError(UnavailableError):
    """The version of the model that was asked for exists and does not serve."""


class UnsupportedError(ServingError):
    kind = ErrorKind.UNSUPPORTED


class AlreadyExistsError(ServingError):
    kind = ErrorKind.ALREADY_EXISTS


class CancelledError(ServingError):
    kind = ErrorKind.CANCELLED


def stopping_error(request_id: str) -> ServingError:
    """For a request that comes when the server, or its model's scheduler, takes no more."""
    return UnavailableError(
        "Server is stopping, scheduler for model has stopped accepting new inference requests"
    ).for_request(request_id)


def unanswered_error() -> ServingError:
    """For a request that is still under way when the server ends."""
    return UnavailableError("Server is stopping, the request was not answered in time")


def unwritten_error(error: Exception) -> ServingError:
    """For a response that could not be passed on to its client, because of something that nobody has foreseen unless it
    says itself what a client is to be told."""
    if isinstance(error, ServingError):
        return error
    text = f"{type(error).__name__}: {error}"[:_MOST_UNFORESEEN_CHARS].encode("utf-8", "replace").decode()
    return InternalError(f"the server failed to answer the request: {text}")
