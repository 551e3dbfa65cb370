"""Inflating beside the event loop: what becomes large is begun when there is memory for it.

What is inflated waits to be read, so many small bodies could become much memory at once. Two lines keep them apart,
each with threads and memory of its own: what stays short never waits behind what becomes long.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from trireme.core.threads.pools import create_threads
from trireme.protocol.inflating import Compressed
from trireme.server.long_work import OrderedWork

SHORT_BYTES: Final = 4 << 20
"""What becomes larger is inflated in the second line."""
SHORT_ROOM_BYTES: Final = 32 << 20
LONG_ROOM_BYTES: Final = 128 << 20
"""What may be inflated and not yet read in the two lines; something larger has its line for itself."""
_THREADS: Final = min(8, max(1, (os.cpu_count() or 1) // 2))


class InflationRoom:
    """The memory of a line. Threads wait for it, in the order in which they came."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.turn = threading.Lock()
        self.change = threading.Condition()

    def has(self, size_bytes: int) -> bool:
        """Whether so much is left, or nobody has any."""
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes


class InflationShare:
    """What one message has of a room, from before it is inflated until it was read, or nobody wants it any more."""

    __slots__ = ("_is_closed", "_room", "_size_bytes")

    def __init__(self) -> None:
        self._is_closed = False
        self._room: InflationRoom | None = None
        self._size_bytes = 0

    def take(self, room: InflationRoom, size_bytes: int) -> bool:
        """Waits for so much; False where it is not wanted any more. On a thread."""
        with room.turn, room.change:
            self._room = room
            room.change.wait_for(lambda: self._is_closed or room.has(size_bytes))
            if not self._is_closed:
                self._size_bytes = size_bytes
                room.used_bytes += size_bytes
            return not self._is_closed

    def keep(self, size_bytes: int) -> None:
        """So much of it is needed in the end."""
        room = self._room
        if room is not None:
            with room.change:
                if not self._is_closed:
                    room.used_bytes += size_bytes - self._size_bytes
                    self._size_bytes = size_bytes
                    room.change.notify_all()

    def close(self) -> None:
        """Gives it back; where it is still waited for, it is not taken."""
        self._is_closed = True
        room = self._room
        if room is not None:
            with room.change:
                room.used_bytes -= self._size_bytes
                self._size_bytes = 0
                room.change.notify_all()


class Inflation:
    """The two lines of one part of the server."""

    __slots__ = ("_long_room", "_long_threads", "_short_room", "_short_threads")

    def __init__(self, owner: str, short_room_bytes: int = SHORT_ROOM_BYTES, long_room_bytes: int = LONG_ROOM_BYTES):
        self._short_room = InflationRoom(short_room_bytes)
        self._long_room = InflationRoom(long_room_bytes)
        self._short_threads = create_threads(f"{owner}-inflating", most=_THREADS)
        self._long_threads = create_threads(f"{owner}-inflating-long", most=_THREADS)

    @property
    def threads(self) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
        """Of what stays short and of what becomes long."""
        return self._short_threads, self._long_threads

    @property
    def used_bytes(self) -> int:
        """What both lines hold."""
        return self._short_room.used_bytes + self._long_room.used_bytes

    def compute(
        self, work: OrderedWork, message: Compressed, share: InflationShare, then: Callable[[bytes], None]
    ) -> None:
        """Inflates the message in its turn and goes on with the result. Whoever reads that closes the share."""
        go_on = partial(self._go_on, work, message, share, then)
        work.compute(partial(self._inflate_short, message, share), go_on, self._short_threads)

    def close(self) -> None:
        """Lets the threads end with what they have begun."""
        for threads in self.threads:
            threads.shutdown(wait=False, cancel_futures=True)

    def _go_on(
        self,
        work: OrderedWork,
        message: Compressed,
        share: InflationShare,
        then: Callable[[bytes], None],
        inflated: bytes | None,
    ) -> None:
        if inflated is None:
            work.compute(partial(self._inflate_long, message, share), then, self._long_threads)
        else:
            then(inflated)

    def _inflate_short(self, message: Compressed, share: InflationShare) -> bytes | None:
        if not share.take(self._short_room, min(SHORT_BYTES, message.most_bytes)):
            return b""  # nobody takes it
        inflated = message.within(SHORT_BYTES)
        share.keep(0 if inflated is None else len(inflated))
        return inflated

    def _inflate_long(self, message: Compressed, share: InflationShare) -> bytes:
        size_bytes = message.count()
        return message.whole(size_bytes) if share.take(self._long_room, size_bytes) else b""
