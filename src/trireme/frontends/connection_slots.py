"""What all listeners share: how many connections there may be, in all and of one address, and what they may hold."""

from __future__ import annotations

import asyncio
import os
import resource
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trireme.frontends.accepting import Accepting
from trireme.frontends.inflight import InflightBytes

_UNLIMITED: Final = 1 << 31
_RESERVED_FILES: Final = 64
_RESERVED_SHARE: Final = 4
_MAX_RESTRICTED: Final = 16
"""Connections beyond the limit, which may ask for health alone."""
_RESTRICTED_S: Final = 5.0
_TOO_MANY: Final = "the server has as many connections as it may have. Use --max-connections to increase the limit."
_TOO_FEW_FILES: Final = (
    "the server has as many connections as the open files that the system allows leave room for, which are fewer than "
    "--max-connections. Raise the limit of open files (ulimit -n) where it is started."
)

Abort = Callable[[], None]


class ConnectionSlots:
    """Changed on the event loop's thread alone."""

    def __init__(
        self, max_count: int = _UNLIMITED, max_per_address: int = 0, *, is_short_of_files: bool = False
    ) -> None:
        self.max_count = max_count
        self.limit = "the open files that the system allows" if is_short_of_files else "--max-connections"
        self.refusal = _TOO_FEW_FILES if is_short_of_files else _TOO_MANY
        """What those beyond the limit are told."""
        self._max_per_address = max_per_address
        self._count = 0
        self._by_address: dict[str, int] = {}
        self._coming_count = 0
        self._restricted: deque[Abort] = deque()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether the next connection is beyond the limit."""
        return self._count >= self.max_count

    def take(self) -> bool:
        """Counts a connection that is being accepted; False where it is beyond the limit."""
        if self.is_full:
            return False
        self._count += 1
        return True

    def take_address(self, address: str) -> bool:
        """The same for its address, once that is known; False where it has as many as it may have."""
        of_address = self._by_address.get(address, 0)
        if self._max_per_address and of_address >= self._max_per_address:
            return False
        self._by_address[address] = of_address + 1
        return True

    def give_back(self, address: str | None) -> None:
        """A connection that was counted has ended; None where its address was not."""
        self._count -= 1
        if address is not None:
            left = self._by_address.pop(address) - 1
            if left:
                self._by_address[address] = left

    def await_restricted(self) -> bool:
        """Counts a connection beyond the limit whose handshake is to come; False where too many are awaited."""
        if self._coming_count >= _MAX_RESTRICTED:
            return False
        self._coming_count += 1
        return True

    def await_no_more(self) -> None:
        """Such a one has come, or failed."""
        self._coming_count -= 1

    def enter_restricted(self, abort: Abort) -> None:
        """Takes in a connection beyond the limit. The oldest such one goes when there are too many, because a probe is
        answered at once."""
        if len(self._restricted) >= _MAX_RESTRICTED:
            self._restricted.popleft()()
        self._restricted.append(abort)

    def leave_restricted(self, abort: Abort) -> None:
        """Such a connection has ended."""
        if abort in self._restricted:
            self._restricted.remove(abort)


class ConnectionPlace:
    """Where one connection stands among all of them: counted, or beyond the limit for some seconds, unless it becomes
    counted. Made with the connection, entered once its client is known, which it never is behind a failed handshake."""

    __slots__ = ("_abort", "_address", "_is_awaited", "_is_counted", "_slots", "_timer")

    def __init__(self, slots: ConnectionSlots) -> None:
        self._slots = slots
        self._is_counted = slots.take()
        self._is_awaited = False  # beyond the limit, and its client is not there yet
        self._address: str | None = None  # of its client, once that is known and not refused
        self._abort: Abort = _nothing
        self._timer: asyncio.TimerHandle | None = None  # where it is not

    @property
    def is_counted(self) -> bool:
        """Whether all may be asked for on the connection, and not health alone."""
        return self._is_counted

    @property
    def refusal(self) -> str:
        """What a client is told that asks for more than health where it is not."""
        return self._slots.refusal

    @property
    def limit(self) -> str:
        """What it is beyond where it is not counted."""
        return self._slots.limit

    def claim(self, address: str) -> bool:
        """Counts the connection at this address before it is entered; False where the address has too many, or too many
        others beyond the limit have not come so far: in a handshake they hold descriptors that are not theirs."""
        if not self._is_counted:
            self._is_awaited = self._is_awaited or self._slots.await_restricted()
            return self._is_awaited
        if self._address is None:
            if not self._slots.take_address(address):
                return False
            self._address = address
        return True

    def enter(self, address: str, abort: Abort) -> None:
        """Counts the connection of a client at this address, where that is not done yet, or ends it where the address
        has too many; one beyond the limit is ended after a while."""
        self._end_wait()
        if not self._is_counted:
            self._address, self._abort = address, abort
            self._slots.enter_restricted(abort)
            self._timer = asyncio.get_running_loop().call_later(_RESTRICTED_S, abort)
        elif not self.claim(address):
            abort()

    def count(self) -> bool:
        """Takes a slot that has become free since the connection came; False where there is none for its address. The
        ends of others are often noticed after a connection that came later than they did."""
        slots, address = self._slots, self._address
        if self._is_counted:
            return True
        if address is None or not slots.take():
            return False
        if not slots.take_address(address):
            slots.give_back(None)
            return False
        self._is_counted = True
        self._leave_restricted()
        return True

    def leave(self) -> None:
        """The connection has ended."""
        self._end_wait()
        if self._is_counted:
            self._is_counted = False  # one whose handshake ended as it ran out of time is lost twice
            self._slots.give_back(self._address)
        else:
            self._leave_restricted()

    def _end_wait(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            self._slots.await_no_more()

    def _leave_restricted(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._slots.leave_restricted(self._abort)
            self._timer, self._abort = None, _nothing  # which would keep the connection alive


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """What all listeners of the server share."""

    slots: ConnectionSlots = field(default_factory=ConnectionSlots)
    """How many connections there may be."""
    inflight: InflightBytes = field(default_factory=InflightBytes)
    """How much memory what they ask for may take."""
    accepting: Accepting | None = None
    """Whoever holds the sockets of clients, where that is not this process."""


def create_slots(max_connections: int, max_per_address: int) -> ConnectionSlots:
    """As many as are asked for and the system leaves room for."""
    count = connection_count(max_connections)
    return ConnectionSlots(count, max_per_address, is_short_of_files=count != max_connections)


def connection_count(max_connections: int) -> int:
    """How many connections there may be, so that workers, models and shared memory find a free descriptor: no more
    than asked for, and no more than are left of those that the system allows, less a reserve."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return max_connections or _UNLIMITED
    reserve = max(_RESERVED_FILES, min(allowed // _RESERVED_SHARE, 1024)) + _MAX_RESTRICTED
    left = max(1, allowed - len(os.listdir("/proc/self/fd")) - reserve)
    return min(max_connections, left) if max_connections else left


def address_of(peer: object) -> str:
    """The address in what a socket says of its peer; a socket without one has none."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def _nothing() -> None:
    """Ends a connection that has not been entered."""
