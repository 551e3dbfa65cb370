"""Whether the client of a connection goes on: with frames and messages that it began, with reading, with asking."""

from __future__ import annotations

from dataclasses import replace

from trireme.frontends.pace import Pace, PaceLimits
from trireme.protocol.http2.connection import Http2Connection

_UNREAD_PATIENCE = 5
"""How much longer answers may be read slowly: clients of streams stop reading while they work."""


class ClientPace:
    """What one connection has moved, looked at every few seconds."""

    __slots__ = ("_begun_count", "_reading", "_taken_bytes", "arriving")

    def __init__(self, limits: PaceLimits) -> None:
        self.arriving = Pace(limits)
        self.arriving.begin_head()
        self._reading = Pace(replace(limits, slow_timeout_s=_UNREAD_PATIENCE * limits.slow_timeout_s))
        self._taken_bytes = 0  # what had left the server at the last look
        self._begun_count = 0  # frames that had begun by then

    def find_fault(self, http2: Http2Connection, unsent_bytes: int, now_s: float) -> str:
        """Why the connection is to be ended; empty where it is not. `unsent_bytes` are those in the socket's buffer."""
        if self._is_frame_late(http2, now_s):
            return "a frame was not received in time"
        if self._is_message_slow(http2, now_s):
            return "a message arrives too slowly"
        taken = http2.outbound.sent_bytes - unsent_bytes
        self._reading.moved_bytes += max(0, taken - self._taken_bytes)
        self._taken_bytes = taken
        if not http2.outbound.queued_bytes and not unsent_bytes:
            self._reading.begin_window()
        elif self._reading.is_body_slow(now_s):
            return "responses are read too slowly"
        return ""

    def is_idle_long(self, http2: Http2Connection, now_s: float) -> bool:
        """Whether there was no call for too long."""
        if http2.streams:
            self.arriving.was_used = True
        return self.arriving.is_idle_long(now_s)

    def _is_frame_late(self, http2: Http2Connection, now_s: float) -> bool:
        """Whether one and the same frame has not ended for long; a busy client is in the midst of another each time."""
        if http2.is_mid_frame and http2.begun_count == self._begun_count:
            return self.arriving.is_head_late(now_s)
        self._begun_count = http2.begun_count
        self.arriving.begin_head()
        return False

    def _is_message_slow(self, http2: Http2Connection, now_s: float) -> bool:
        if any(stream.call is not None and stream.call.awaits_client for stream in http2.streams.values()):
            return self.arriving.is_body_slow(now_s)
        self.arriving.begin_window()
        return False
