"""What a connection and the calls on it know of each other."""

from __future__ import annotations

from typing import Protocol

from trireme.access.tracked_request import TrackedRequest
from trireme.core.elements import Buffer
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.inflight import ConnectionBytes
from trireme.protocol.http2.connection import Http2Connection


class OpenCall(Protocol):
    """A call, as its connection sees it. All methods are for the event loop's thread."""

    tracked: TrackedRequest | None
    """Set where somebody wants to know who calls, and what becomes of it."""

    def receive(self, data: Buffer, is_ended: bool) -> None:
        """Takes some of the request's bytes; never raises."""

    def abandon(self) -> None:
        """The client left: nothing can be sent any more."""


class BufferingCall(Protocol):
    """A call that keeps its messages until the connection is about to write."""

    def flush(self) -> None:
        """Hands over the messages that wait."""


class Connection(Protocol):
    """A client's connection, as calls and timers see it. All methods are for the event loop's thread."""

    context: ServiceContext
    http2: Http2Connection
    inline_bytes_left: int
    """What of the present read may still be inflated at once, and not beside the event loop."""
    is_draining: bool
    """The connection closes with its last call."""
    last_received: float
    """When bytes came last, by the event loop's clock."""

    @property
    def is_unread(self) -> bool:
        """Whether the client may have sent something that nobody has looked at."""

    @property
    def peer(self) -> str:
        """The client's address."""

    def schedule_flush(self) -> None:
        """What was added is written in this turn of the loop, together with what others add."""

    def add_dirty(self, call: BufferingCall) -> None:
        """The call has messages that it wants to hand over before the next write."""

    has_refused_much: bool
    """So much was read in vain that nothing that takes long is read any more."""

    def note_refused(self) -> None:
        """A message took long to read, only to be refused."""

    inflight: ConnectionBytes
    """What the calls of the connection hold."""

    def charge(self, size_bytes: int) -> None:
        """So much more, or less, is there of what came compressed."""

    def expect(self, size_bytes: int) -> None:
        """So much more, or less, may become of what came compressed."""

    def hold(self, size_bytes: int) -> None:
        """So much more, or less, is there of what has arrived."""

    def flush(self) -> None:
        """Writes everything that waits."""

    def close(self) -> None:
        """Ends the connection and every call on it."""

    def abort(self, reason: str) -> None:
        """Ends the connection without a word."""
