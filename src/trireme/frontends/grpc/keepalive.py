"""How long a connection may be silent, how often its client may ping, and how old it may get."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from trireme.protocol.http2.wire import ENHANCE_YOUR_CALM

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

_PING = b"trireme!"
_IDLE_PING_INTERVAL_S = 7200.0
"""Without open calls, and without leave to ping then, pings closer than this are strikes."""


class Keepalive:
    """The timers of one connection."""

    __slots__ = (
        "_age_timer",
        "_connection",
        "_is_waiting",
        "_last_ping",
        "_loop",
        "_options",
        "_pings_without_data",
        "_strikes",
        "_timer",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = connection.context.loop
        self._options = connection.context.options
        self._strikes = 0
        self._last_ping: float | None = None
        self._pings_without_data = 0
        self._is_waiting = False
        self._timer = self._loop.call_later(self._options.keepalive_time_ms / 1e3, self._check_silence)
        self._age_timer: asyncio.TimerHandle | None = None
        if self._options.max_connection_age_ms is not None:
            age_s = self._options.max_connection_age_ms / 1e3 * random.uniform(0.9, 1.1)
            self._age_timer = self._loop.call_later(age_s, self._grow_old)

    def stop(self) -> None:
        self._timer.cancel()
        if self._age_timer is not None:
            self._age_timer.cancel()

    def ping_arrived(self) -> None:
        """Counts a client's ping against it where it comes too soon and nothing was sent since the last one."""
        outbound = self._connection.http2.outbound
        now = self._loop.time()
        if outbound.has_sent_data:
            outbound.has_sent_data = False
            self._strikes = 0
            self._last_ping = None
        is_idle = not self._connection.http2.streams and not self._options.keepalive_permit_without_calls
        limit_ms = self._options.http2_min_recv_ping_interval_without_data_ms
        interval_s = _IDLE_PING_INTERVAL_S if is_idle else limit_ms / 1e3
        if self._last_ping is not None and now < self._last_ping + interval_s:
            self._strikes += 1
            if 0 < self._options.http2_max_ping_strikes < self._strikes:
                self._connection.http2.close(ENHANCE_YOUR_CALM, "too_many_pings")
        else:
            self._last_ping = now

    def ping_answered(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._timer.cancel()
            self._timer = self._loop.call_later(self._options.keepalive_time_ms / 1e3, self._check_silence)

    def _check_silence(self) -> None:
        time_s = self._options.keepalive_time_ms / 1e3
        connection = self._connection
        left_s = connection.last_received + time_s - self._loop.time()
        if left_s <= 0 and self._may_ping():
            self._is_waiting = True
            self._pings_without_data += 1
            connection.http2.ping(_PING)
            connection.flush()
            self._timer = self._loop.call_later(self._options.keepalive_timeout_ms / 1e3, self._give_up)
        else:
            self._timer = self._loop.call_later(left_s if left_s > 0 else time_s, self._check_silence)

    def _may_ping(self) -> bool:
        outbound = self._connection.http2.outbound
        if outbound.has_sent_data:
            self._pings_without_data = 0
        limit = self._options.http2_max_pings_without_data
        if limit and self._pings_without_data >= limit:
            return False
        return bool(self._connection.http2.streams) or self._options.keepalive_permit_without_calls

    def _give_up(self) -> None:
        if self._connection.is_unread:  # the answer may be there
            self._timer = self._loop.call_later(self._options.keepalive_timeout_ms / 1e3, self._give_up)
        else:
            self._connection.abort("keepalive timeout")

    def _grow_old(self) -> None:
        connection = self._connection
        connection.http2.announce_shutdown()
        connection.is_draining = True
        connection.flush()
        grace_ms = self._options.max_connection_age_grace_ms
        if grace_ms is not None:
            self._age_timer = self._loop.call_later(grace_ms / 1e3, connection.close)
