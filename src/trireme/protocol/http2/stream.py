"""One HTTP/2 stream: one request and its response."""

from __future__ import annotations

from collections import deque
from typing import Any

from trireme.core.elements import Buffer
from trireme.protocol.http2.headers import RequestHeaders


class Stream:
    """State that both halves of a connection share about one stream; `call` is for the sink's own object."""

    __slots__ = (
        "call",
        "headers",
        "id",
        "id_bytes",
        "is_received",
        "queue",
        "queued_bytes",
        "receive_left",
        "send_credit",
        "trailers",
    )

    def __init__(self, stream_id: int, headers: RequestHeaders, receive_left: int) -> None:
        self.id = stream_id
        self.id_bytes = stream_id.to_bytes(4, "big")
        self.headers = headers
        self.call: Any = None
        self.is_received = False  # the peer has ended its side
        self.receive_left = receive_left  # bytes the peer may still send before we grant more
        self.send_credit = 0  # what the peer granted less what was sent; with the initial window, what we may send
        self.queue: deque[Buffer] | None = None  # DATA that waits for a window
        self.queued_bytes = 0
        self.trailers: bytes | None = None  # the block to send once the queue is empty

    def abandon_call(self) -> None:
        """Tells the sink's object, where there still is one, that the peer has left."""
        if self.call is not None:
            self.call.abandon()
