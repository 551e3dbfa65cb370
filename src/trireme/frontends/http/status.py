"""The one table from the kinds of our errors to HTTP statuses, and the status lines."""

from __future__ import annotations

from typing import Final

from trireme.core.errors import (
    ErrorKind,
    ForbiddenError,
    QuotaExceededError,
    ServingError,
    UnauthenticatedError,
    UnsupportedMediaError,
)
from trireme.frontends.inflight import NeverFitsError

STATUS_BY_KIND: Final = {
    ErrorKind.UNKNOWN: 400,
    ErrorKind.INTERNAL: 500,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.INVALID_ARGUMENT: 400,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.UNSUPPORTED: 501,
    ErrorKind.ALREADY_EXISTS: 400,
    ErrorKind.CANCELLED: 400,
}

STATUS_BY_TYPE: Final[dict[type[ServingError], int]] = {
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    QuotaExceededError: 429,
    UnsupportedMediaError: 415,
    NeverFitsError: 413,
}
"""Of errors that have a status of their own: who sends the request, what kind of file, and how much."""

_REASONS: Final = {
    200: b"OK",
    304: b"Not Modified",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    413: b"Payload Too Large",
    415: b"Unsupported Media Type",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
    507: b"Insufficient Storage",
}

STATUS_LINES: Final = {status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in _REASONS.items()}


_MEMORY_WORDS: Final = (
    "out of memory", "out_of_memory", "memoryerror", "outofmemory", "failed to allocate memory",
    "cublas_status_alloc_failed", "no space left on device",
)  # fmt: skip
"""What libraries and systems say where memory does not suffice, in lower case."""


def is_out_of_memory(error: ServingError) -> bool:
    """Whether the error tells of too little memory."""
    text = error.message.lower()
    return any(words in text for words in _MEMORY_WORDS)


def status_of(error: ServingError, tells_memory: bool = False) -> int:
    """The status a client reads for this error; 507 for too little memory where that is told apart."""
    if tells_memory and is_out_of_memory(error):
        return 507
    return STATUS_BY_TYPE.get(type(error)) or STATUS_BY_KIND[error.kind]


def header_lines(error: ServingError) -> bytes:
    """Whole header lines that go with an error."""
    if isinstance(error, UnauthenticatedError):
        return b'WWW-Authenticate: Bearer realm="trireme"\r\n'
    if isinstance(error, QuotaExceededError):
        return b"Retry-After: %d\r\n" % error.retry_after_s
    return b""
