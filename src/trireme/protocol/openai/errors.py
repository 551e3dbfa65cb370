"""Errors in OpenAI's shape: a status, and an object that names the field that was wrong."""

from __future__ import annotations

from typing import Final

import orjson

from trireme.core.errors import (
    ErrorKind,
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    PromptTooLongError,
    QueueFullError,
    QuotaExceededError,
    ServingError,
    UnauthenticatedError,
)
from trireme.protocol.json_codec.text import encode_string

INVALID_REQUEST: Final = "invalid_request_error"
_SERVER_ERROR: Final = "server_error"
_MAX_PATH_CHARS: Final = 200

_STATUS_AND_TYPE: Final = {
    ErrorKind.UNKNOWN: (400, INVALID_REQUEST),
    ErrorKind.INTERNAL: (500, _SERVER_ERROR),
    ErrorKind.NOT_FOUND: (404, INVALID_REQUEST),
    ErrorKind.INVALID_ARGUMENT: (400, INVALID_REQUEST),
    ErrorKind.UNAVAILABLE: (503, _SERVER_ERROR),
    ErrorKind.UNSUPPORTED: (400, INVALID_REQUEST),
    ErrorKind.ALREADY_EXISTS: (400, INVALID_REQUEST),
    ErrorKind.CANCELLED: (400, INVALID_REQUEST),
}
_REFUSALS: Final[dict[type[ServingError], tuple[int, str, str]]] = {
    UnauthenticatedError: (401, INVALID_REQUEST, "invalid_api_key"),
    ForbiddenError: (403, INVALID_REQUEST, "insufficient_permissions"),
    QuotaExceededError: (429, "rate_limit_error", "rate_limit_exceeded"),
    QueueFullError: (429, "rate_limit_error", "queue_full"),
}
"""Status, type and code of refusals that have a code of their own."""


class FieldError(InvalidArgumentError):
    """A request that cannot be followed because of one of its fields."""

    def __init__(self, param: str | None, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


_MOST_SHOWN: Final = 256
"""Characters of a name that the client has chosen."""


class TooLargeError(InvalidArgumentError):
    """A body that is longer than the server reads."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"The request of {size_bytes} bytes is too large: at most {limit_bytes} bytes are read.")


class UnknownModelError(NotFoundError):
    """There is no such model, or not in this state."""

    def __init__(self, name: str, meant: str | None = None) -> None:
        hint = f" Did you mean '{meant}'?" if meant is not None else ""
        shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
        super().__init__(f"The model '{shown}' does not exist.{hint}")


class UnknownPathError(NotFoundError):
    """This API has no such path."""

    def __init__(self, method: str, path: str, meant: str | None = None) -> None:
        hint = f" Did you mean '{meant}'?" if meant is not None else ""
        super().__init__(f"Unknown request URL: {method} {path[:_MAX_PATH_CHARS]}.{hint}")


class WrongMethodError(InvalidArgumentError):
    """The path takes other methods."""

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__(f"Not allowed to {method} on {path[:_MAX_PATH_CHARS]}, which takes {allowed}.")


def status_and_type(error: ServingError) -> tuple[int, str]:
    """The HTTP status of an error, and its type in OpenAI's words."""
    if isinstance(error, TooLargeError):
        return 413, INVALID_REQUEST
    if isinstance(error, WrongMethodError):
        return 405, INVALID_REQUEST
    refusal = _REFUSALS.get(type(error))
    if refusal is not None:
        return refusal[:2]
    return _STATUS_AND_TYPE[error.kind]


def encode_api_error(error: ServingError) -> bytes:
    """The error's body."""
    param, code = None, None
    if isinstance(error, FieldError):
        param, code = error.param, error.code
    elif isinstance(error, UnknownModelError):
        param, code = "model", "model_not_found"
    elif isinstance(error, UnknownPathError):
        code = "unknown_url"
    elif isinstance(error, WrongMethodError):
        code = "method_not_supported"
    elif type(error) in _REFUSALS:
        code = _REFUSALS[type(error)][2]
    elif isinstance(error, PromptTooLongError):
        code = "context_length_exceeded"
    return b'{"error":{"message":%b,"type":%b,"param":%b,"code":%b}}' % (
        encode_string(error.message),
        orjson.dumps(status_and_type(error)[1]),
        orjson.dumps(param),
        orjson.dumps(code),
    )
