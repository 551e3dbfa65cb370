"""What requests and unread answers take in the server's memory: counted for all of them, and for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from trireme.core.errors import UnavailableError

CHARGED_FROM_BYTES: Final = 4096
"""Smaller requests are not counted: they are bounded by the number of connections and calls."""
LARGE_ANSWER_BYTES: Final = 1 << 20
"""Larger answers are refused where there is no room for them; over gRPC smaller ones, too, once their client does not
read or there is no room at all."""
_WAIT_S: Final = 2.0
"""How long somebody waits for room in a line that does not move."""
_LONGEST_WAIT_S: Final = 30.0
"""The same in one that does."""
_POLL_S: Final = 0.05
_TURN_S: Final = 0.02
_SPARE_SHARE: Final = 4
"""Of the limit, that may be taken beyond it by bodies which are received while others wait."""
_UNLIMITED: Final = 1 << 62
_SEND_LESS: Final = "Send, or ask for, less at once"
"""It is this client's own: a later attempt would end in the same way."""

Refuse = Callable[[str], None]


class NeverFitsError(UnavailableError):
    """A request is larger than a limit by itself; to send it again is of no use."""


class InflightBytes:
    """The sum over all connections, the two limits, and the line of those who wait for room."""

    __slots__ = (
        "_is_look_due",
        "_is_poll_due",
        "_line",
        "_moved_s",
        "_peak_bytes",
        "connection_limit_bytes",
        "is_full",
        "limit_bytes",
        "promised_bytes",
        "used_bytes",
        "waiting_bytes",
    )

    def __init__(self, limit_bytes: int = _UNLIMITED, connection_limit_bytes: int = _UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.connection_limit_bytes = connection_limit_bytes
        self.used_bytes = 0
        self.is_full = False
        """Whether those who do not wait have more than the limit."""
        self.waiting_bytes = 0
        """Of these, what those in the line hold."""
        self.promised_bytes = 0
        """The same, what has not arrived of those who were let in."""
        self._line: dict[Waiter, None] = {}  # in the order in which they came, and have to be refused
        self._moved_s = 0.0  # when somebody was let in last
        self._is_look_due = False
        self._is_poll_due = False
        self._peak_bytes = 0

    @property
    def active_bytes(self) -> int:
        """What those hold who do not wait."""
        return self.used_bytes - self.waiting_bytes

    def add(self, size_bytes: int) -> None:
        """So much more, or less, is there."""
        self.used_bytes += size_bytes
        self.is_full = self.used_bytes - self.waiting_bytes > self.limit_bytes
        if self.used_bytes > self._peak_bytes:
            self._peak_bytes = self.used_bytes
        if size_bytes < 0 and self._line:
            self._look_again()

    def take_peak(self) -> int:
        """The most that was there since the last call."""
        peak, self._peak_bytes = self._peak_bytes, self.used_bytes
        return peak

    def enter(self, waiter: Waiter) -> None:
        """At the end of the line."""
        self._line[waiter] = None
        self.note_waiting(waiter.size_bytes)
        self._poll_later()

    def leave(self, waiter: Waiter) -> None:
        """Let in, refused or gone."""
        if waiter in self._line:
            del self._line[waiter]
            self.note_waiting(-waiter.size_bytes)

    def note_waiting(self, size_bytes: int) -> None:
        """Those in the line hold so much more, or less, of what is there."""
        self.waiting_bytes += size_bytes
        self.is_full = self.used_bytes - self.waiting_bytes > self.limit_bytes

    def _poll_later(self) -> None:
        if self._line and not self._is_poll_due:
            self._is_poll_due = True
            asyncio.get_running_loop().call_later(_POLL_S, self._poll)

    def _poll(self) -> None:
        self._is_poll_due = False
        self._poll_later()
        self._look()

    def _look_again(self) -> None:
        if not self._is_look_due:
            self._is_look_due = True
            asyncio.get_running_loop().call_soon(self._look_soon)

    def _look_soon(self) -> None:
        self._is_look_due = False
        self._look()

    def _look(self) -> None:
        """Lets in from the front of the line as many as there is room for; one that waits for its own connection holds
        up nobody. All wait for as long as somebody was let in lately, and then equally long, so those who have waited
        for too long are in front. Who is let in may be answered at once, so the loop has its turn between many."""
        now_s = monotonic()
        is_full = False
        for waiter in list(self._line):
            if waiter not in self._line:
                continue  # gone because of another
            if monotonic() - now_s > _TURN_S:
                self._look_again()
                return
            until_s = min(max(waiter.since_s, self._moved_s) + _WAIT_S, waiter.since_s + _LONGEST_WAIT_S)
            if now_s >= until_s and (is_full or not waiter.fits()):
                waiter.refuse()
            elif is_full:
                return
            elif waiter.fits():
                self._moved_s = now_s
                waiter.let_in()
            else:
                is_full = waiter.is_too_much


class ConnectionBytes:
    """One connection's share. Used on the event loop's thread."""

    __slots__ = ("_all", "_is_closed", "_waiting", "held_bytes", "promised_bytes", "unsent_bytes")

    def __init__(self, all_bytes: InflightBytes) -> None:
        self._all = all_bytes
        self.held_bytes = 0
        """Of requests, as received and as inflated, and of large answers that are on their way to the front-end process
        that holds the socket."""
        self.unsent_bytes = 0
        """Of answers that the client has not taken yet."""
        self._is_closed = False
        self.promised_bytes = 0
        """Counted for what was let in, and has not arrived."""
        self._waiting: list[Waiter] = []

    @property
    def all_bytes(self) -> int:
        """What all connections hold."""
        return self._all.used_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether something on the connection waits for room."""
        return bool(self._waiting)

    def hold(self, size_bytes: int) -> None:
        """So much more, or less, is held; nothing is where the connection is gone."""
        if not self._is_closed:
            self.held_bytes += size_bytes
            self._all.add(size_bytes)
            if size_bytes < 0 and self._waiting:
                self._check_waiting()

    def arrive(self, size_bytes: int) -> None:
        """So much more is held of what a client sends, which may have been promised to it."""
        if not self._is_closed:
            self.held_bytes += size_bytes
            if self.promised_bytes:
                size_bytes += self._promise(-min(size_bytes, self.promised_bytes))
            self._all.add(size_bytes)

    def _check_waiting(self) -> None:
        """Those who wait hold no more than there is: what some held may have been let go of."""
        too_much = sum(waiter.size_bytes for waiter in self._waiting) - self.held_bytes
        for waiter in self._waiting:
            if too_much > 0:
                less = min(too_much, waiter.size_bytes)
                waiter.size_bytes -= less
                too_much -= less
                self._all.note_waiting(-less)

    def promise(self, size_bytes: int) -> None:
        """So much is counted before it arrives."""
        if not self._is_closed:
            self._all.add(self._promise(size_bytes))

    def end_promise(self) -> None:
        """What has not arrived of it will not."""
        if self.promised_bytes:
            self._all.add(self._promise(-self.promised_bytes))

    def _promise(self, size_bytes: int) -> int:
        self.promised_bytes += size_bytes
        self._all.promised_bytes += size_bytes
        return size_bytes

    def set_unsent(self, size_bytes: int) -> None:
        """So much waits to be read."""
        if not self._is_closed:
            self._all.add(size_bytes - self.unsent_bytes)
            self.unsent_bytes = size_bytes

    def excess(self, more_bytes: int = 0) -> str:
        """Which limit is, or would be, exceeded by what arrives, as a sentence; empty where none is."""
        return self._excess(self._all.used_bytes, more_bytes)

    def excess_under_way(self, more_bytes: int) -> str:
        """The same for what becomes of a request that is under way: those who wait for room wait for that, too."""
        return self._excess(self._all.active_bytes, more_bytes)

    def excess_of_answer(self, size_bytes: int, unsent_bytes: int = 0, request_bytes: int = 0) -> str:
        """The same for an answer, which takes the place of what its request holds, beside others that wait to be read
        and may not all be counted yet. One that is too small to be counted, as those about health are, is only held
        against its own connection."""
        if size_bytes <= request_bytes:
            return ""
        more_bytes = size_bytes - request_bytes + max(0, unsent_bytes - self.unsent_bytes)
        own = self.held_bytes + self.unsent_bytes + more_bytes
        if size_bytes > CHARGED_FROM_BYTES or own > self._all.connection_limit_bytes:
            return self.excess_under_way(more_bytes)
        return ""

    def check(self, more_bytes: int) -> None:
        """Raises UnavailableError where a limit would be exceeded by so much more of what is under way."""
        excess = self.excess_under_way(more_bytes)
        if excess:
            raise UnavailableError(excess)

    def _excess(self, used_bytes: int, more_bytes: int) -> str:
        own = self.held_bytes + self.unsent_bytes + more_bytes
        if own > self._all.connection_limit_bytes:
            limit = self._all.connection_limit_bytes
            return _sentence("this connection", own, limit, "max-connection-inflight-bytes", _SEND_LESS)
        used, limit = used_bytes + more_bytes, self._all.limit_bytes
        if used > limit:
            advice = _SEND_LESS if own > limit else "Try again later"
            return _sentence("the server", used, limit, "max-inflight-bytes", advice)
        return ""

    def check_body(self, received_bytes: int, more_bytes: int) -> None:
        """Raises where a limit would be exceeded by what becomes of a body: NeverFitsError where it is by that and by
        what was received alone."""
        never = self.fits_never(received_bytes + more_bytes)
        if never:
            raise NeverFitsError(never)
        self.check(more_bytes)

    def fits_never(self, size_bytes: int, what: str = "a request of {} bytes is") -> str:
        """The sentence for what is larger than a limit by itself; empty where it is not."""
        flags = {
            "max-connection-inflight-bytes": self._all.connection_limit_bytes,
            "max-inflight-bytes": self._all.limit_bytes,
        }
        for flag, limit in flags.items():
            if size_bytes > limit:
                return (
                    f"{what.format(size_bytes)} larger than the {limit} bytes that all together may take. "
                    f"Send less at once, or use --{flag} to increase the limit."
                )
        return ""

    def wait_for_room(
        self, resume: Callable[[], None], refuse: Refuse, size_bytes: int = 0, more_bytes: int | None = None
    ) -> None:
        """Calls `resume` when there is room again, or `refuse` with the reason where there is none for too long. Who
        waits holds so much and will hold so much more, which is promised to it; None where nobody knows. Who waits
        already keeps its place with what it holds now."""
        waiter = next((waiter for waiter in self._waiting if waiter.resume == resume), None)
        if waiter is not None:
            self._all.note_waiting(size_bytes - waiter.size_bytes)
            waiter.size_bytes, waiter.more_bytes = size_bytes, more_bytes
        elif not self._is_closed:
            waiter = Waiter(self, resume, refuse, size_bytes, more_bytes)
            self._waiting.append(waiter)
            self._all.enter(waiter)

    def stop_waiting(self, resume: Callable[[], None] | None = None) -> None:
        """This one, or all on the connection, need not be told any more."""
        for waiter in [waiter for waiter in self._waiting if resume is None or waiter.resume == resume]:
            self._waiting.remove(waiter)
            self._all.leave(waiter)

    def is_too_much(self, size_bytes: int, more_bytes: int) -> bool:
        """Whether the server has no room for one who waits beside all that do not wait."""
        return self._all.active_bytes + size_bytes + more_bytes > self._all.limit_bytes

    def fits(self, size_bytes: int, more_bytes: int | None) -> bool:
        """Whether there is room for one who waits. What waits with it does not count, or all would wait for each other;
        but it is there, so little that has not arrived is let in beside it, or one at a time."""
        waiting_bytes = sum(waiter.size_bytes for waiter in self._waiting)
        own_bytes = self.held_bytes + self.unsent_bytes - waiting_bytes + size_bytes + (more_bytes or 0)
        if own_bytes > self._all.connection_limit_bytes:
            return False
        all_bytes, limit = self._all.used_bytes + (more_bytes or 0), self._all.limit_bytes
        if all_bytes <= limit:
            return True
        if self.is_too_much(size_bytes, more_bytes or 0):
            return False
        is_alone = not (self._all.active_bytes if more_bytes is None else self._all.promised_bytes)
        return more_bytes == 0 or is_alone or all_bytes <= limit + limit // _SPARE_SHARE

    def close(self) -> None:
        """The connection is gone."""
        self.stop_waiting()
        self.end_promise()
        self.hold(-self.held_bytes)
        self.set_unsent(0)
        self._is_closed = True


class Waiter:
    """One who waits for room."""

    __slots__ = ("_connection", "_refuse", "more_bytes", "resume", "since_s", "size_bytes")

    def __init__(
        self,
        connection: ConnectionBytes,
        resume: Callable[[], None],
        refuse: Refuse,
        size_bytes: int,
        more_bytes: int | None,
    ) -> None:
        self.resume = resume
        self.size_bytes = size_bytes
        self.since_s = monotonic()
        self._connection = connection
        self.more_bytes = more_bytes
        self._refuse = refuse

    @property
    def is_too_much(self) -> bool:
        """Whether it is the server that has no room for it, so that others wait behind it."""
        more_bytes = self.more_bytes
        return more_bytes is not None and self._connection.is_too_much(self.size_bytes, more_bytes)

    def fits(self) -> bool:
        """Whether there is room for it."""
        return self._connection.fits(self.size_bytes, self.more_bytes)

    def let_in(self) -> None:
        """There is room for it."""
        self._connection.stop_waiting(self.resume)
        self._connection.promise(self.more_bytes or 0)
        self.resume()

    def refuse(self) -> None:
        """There was none in time."""
        reason = self._connection.excess(self.more_bytes or 0)
        self._connection.stop_waiting(self.resume)
        self._refuse(reason)


def _sentence(whose: str, size_bytes: int, limit_bytes: int, flag: str, advice: str) -> str:
    return (
        f"requests and unread answers of {whose} would take {size_bytes} bytes, more than the {limit_bytes} bytes that "
        f"are allowed. {advice}, or use --{flag} to increase the limit."
    )
