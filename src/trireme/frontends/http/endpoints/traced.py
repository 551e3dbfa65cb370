"""Traces of HTTP requests: begun before their body is read, and shown to the client that asked for its own."""

from __future__ import annotations

from typing import Any

import orjson

from trireme.core import trace as marks
from trireme.frontends.http.exchange import Exchange
from trireme.protocol.http1.sse import encode_event
from trireme.server.trace.tracing import Arrival
from trireme.server.trace.waterfall import waterfall

_MAX_LINE_BYTES = 6000
"""Clients refuse heads of more than 8 KiB or so; a longer table is sent without the steps below the request."""


def arrival_of(exchange: Exchange) -> Arrival:
    """How a request came that may be traced."""
    head = exchange.head
    return Arrival(
        marks.HTTP_RECV_START, marks.HTTP_RECV_END, exchange.received_ns, head.wants_explanation, head.traceparent
    )


def sending_line(exchange: Exchange, now_ns: int) -> bytes:
    """Notes that the answer leaves. The header line with the request's waterfall where the client asked for it, else
    nothing."""
    table = _explanation(exchange, now_ns)
    if table is None:
        return b""
    text = orjson.dumps(table)
    if len(text) > _MAX_LINE_BYTES:
        table["steps_left_out"] = len(table.pop("steps", ()))
        text = orjson.dumps(table)
    return b"X-Explain: %b\r\n" % text


def closing_event(exchange: Exchange, now_ns: int) -> bytes:
    """The same for a stream, whose head is gone by then: an event behind its last one."""
    table = _explanation(exchange, now_ns)
    return b"" if table is None else encode_event(orjson.dumps(table), b"explain")


def _explanation(exchange: Exchange, now_ns: int) -> dict[str, Any] | None:
    request = exchange.request
    if request is None or request.trace is None:
        return None
    request.trace.mark(marks.HTTP_SEND_START, now_ns)
    return waterfall(request.trace) if exchange.head.wants_explanation else None
