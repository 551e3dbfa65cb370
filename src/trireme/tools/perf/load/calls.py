"""One request under way, and what transports report about it."""

from __future__ import annotations

from typing import Any, Final, Protocol

SEQUENCE_END: Final = 1
DELAYED: Final = 2
FAILED: Final = 4


class Call:
    """A place for a request; after its answer the same object carries the next one."""

    __slots__ = (
        "content",
        "context",
        "data",
        "due_ns",
        "flags",
        "outputs",
        "received_ns",
        "sent_ns",
        "sequence_id",
        "start_ns",
        "times",
    )

    def __init__(self) -> None:
        self.data = b""
        """The request as bytes."""
        self.content = 0
        """Which of the prepared requests it is."""
        self.context: Any = None
        """The sequence, session or stream that it belongs to."""
        self.sequence_id = 0
        self.flags = 0
        self.due_ns = 0
        """When it was to be sent; 0 where that was as soon as possible."""
        self.start_ns = 0
        self.sent_ns = 0
        self.received_ns = 0
        self.times: list[int] = []
        """When the responses of a stream came."""
        self.outputs: list[Any] = []
        """The responses themselves, where somebody wants them."""


class CallSink(Protocol):
    """Whoever has the calls made."""

    def responded(self, call: Call, now_ns: int, body: Any) -> None:
        """One of several responses is there."""

    def finished(self, call: Call, now_ns: int, body: Any) -> None:
        """The answer is whole; `body` is its last response, None where that is empty or nobody wants it."""

    def failed(self, call: Call, reason: str) -> None:
        """There will be no answer."""


class Transport(Protocol):
    """Carries calls to the server without waiting for it."""

    def send(self, call: Call) -> None:
        """Sends it at once; sets `start_ns` and `sent_ns`."""

    def flush(self) -> None:
        """Writes what `send` has collected; called at the end of each turn of the loop."""

    def close(self) -> None:
        """Closes every connection; calls under way are forgotten."""
