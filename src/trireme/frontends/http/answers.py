"""Complete HTTP answers as bytes, with header names, order and casing as Triton sends them."""

from __future__ import annotations

from typing import Final

from trireme.frontends.http.head import CONNECTION_CLOSE, RequestHead
from trireme.frontends.http.status import STATUS_LINES
from trireme.protocol.json_codec.text import encode_error

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"
JSON: Final = b"application/json"
METRICS_TEXT: Final = b"text/plain; charset=utf-8"

_OCTETS_HEAD: Final = STATUS_LINES[200] + (
    b"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n%bContent-Length: %d\r\n%b\r\n"
)
_PLATFORM_HEAD: Final = STATUS_LINES[200] + (b"Content-Type: %b;json-header-size=%d\r\n%bContent-Length: %d\r\n%b\r\n")


def plain(head: RequestHead, status: int, body: bytes = b"", extra: bytes = b"") -> bytes:
    """The form of answers whose content type nobody chose; `extra` are whole header lines."""
    return b"%b%b%bContent-Length: %d\r\nContent-Type: text/plain\r\n\r\n%b" % (
        STATUS_LINES[status],
        extra,
        head.connection_line,
        len(body),
        b"" if head.is_bodiless else body,
    )


def typed(head: RequestHead, status: int, body: bytes, content_type: bytes = JSON, extra: bytes = b"") -> bytes:
    """An answer with its content type, JSON unless said otherwise; `extra` are whole header lines."""
    return b"%bContent-Type: %b\r\n%bContent-Length: %d\r\n%b\r\n%b" % (
        STATUS_LINES[status],
        content_type,
        extra,
        len(body),
        head.connection_line,
        b"" if head.is_bodiless else body,
    )


def not_modified(head: RequestHead, extra: bytes) -> bytes:
    """The client has it already; `extra` are whole header lines."""
    return b"%b%b%b\r\n" % (STATUS_LINES[304], extra, head.connection_line)


def octets_head(head: RequestHead, json_size: int, total_size: int, extra: bytes = b"") -> bytes:
    """Status line and headers of an inference answer that carries binary tensors."""
    if head.binary_type:
        return _PLATFORM_HEAD % (head.binary_type, json_size, extra, total_size, head.connection_line)
    return _OCTETS_HEAD % (json_size, extra, total_size, head.connection_line)


def stream_head(head: RequestHead, status: int, content_type: bytes, extra: bytes = b"") -> bytes:
    """Status line and headers of an answer of unknown length: chunked, or ended by closing for HTTP/1.0."""
    framing = b"Transfer-Encoding: chunked\r\n" if head.takes_chunks else CONNECTION_CLOSE
    return b"%bContent-Type: %b\r\n%b%b%b\r\n" % (
        STATUS_LINES[status],
        content_type,
        framing,
        extra,
        head.connection_line if head.takes_chunks else b"",
    )


def plain_error(head: RequestHead, status: int, message: str, extra: bytes = b"") -> bytes:
    """An error in the form without a chosen content type."""
    return plain(head, status, encode_error(message), extra)


def json_error(head: RequestHead, status: int, message: str, extra: bytes = b"") -> bytes:
    """An error as JSON."""
    return typed(head, status, encode_error(message), extra=extra)
