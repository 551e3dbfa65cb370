"""One request of a client, from the moment it wants in to its answer: who asks, what it used, how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from trireme.access.api_key import ANONYMOUS, UNKNOWN
from trireme.access.groups import HEALTH
from trireme.access.usage import KeyUsage
from trireme.core.clock import monotonic_ns

_MAX_PATH: Final = 1024
_MAX_MODEL: Final = 256
"""Characters of what a client names that are written down: a slow disk has many records wait for it."""


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What a client asks for, as far as it follows from the head of its request."""

    protocol: str
    """`HTTP` or `gRPC`."""
    method: str
    """`GET` or `POST`."""
    path: str
    group: str
    """The group of API it belongs to; "" for what is not there."""
    model: str = ""
    """Where the path names one."""


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """A request that is over, as the access log tells it."""

    time_s: float
    """When it began, seconds since 1970."""
    peer: str
    key: str
    target: RequestTarget
    model: str
    status: int
    """An HTTP status, or a gRPC status code."""
    received_bytes: int
    sent_bytes: int
    duration_ns: int
    request_count: int
    """More or less than 1 for a stream of requests."""
    is_cut_off: bool
    """The client left before the end."""


class AccessRecorder(Protocol):
    """Where requests are written down."""

    def record(self, record: AccessRecord) -> None:
        """Takes the record; never waits, never raises."""


class TrackedRequest:
    """Used on the event loop's thread by the exchange or the call that it belongs to."""

    __slots__ = (
        "_began_ns",
        "_has_unknown_key",
        "_in_flight",
        "_is_ended",
        "_is_free",
        "_log",
        "_received_bytes",
        "_request_count",
        "_sent_bytes",
        "_target",
        "_time_s",
        "look_again",
        "model",
        "peer",
        "status",
        "usage",
    )

    def __init__(
        self,
        target: RequestTarget,
        peer: str,
        usage: KeyUsage | None,
        log: AccessRecorder | None,
        *,
        has_unknown_key: bool = False,
    ) -> None:
        self.peer = peer
        self.usage = usage
        """Of the key; None where no keys are asked for, or none was accepted."""
        self.look_again: Callable[[], None] | None = None
        """Of one that may last longer than its key: raises AccessError where that does not open this any more."""
        self.model = target.model
        self.status = 0
        self._target = target
        self._has_unknown_key = has_unknown_key
        self._is_free = target.group == HEALTH  # or a probe would use up what its key has for requests
        self._log = log
        self._in_flight = 0
        self._request_count = 0
        self._received_bytes = 0
        self._sent_bytes = 0
        self._is_ended = False
        self._began_ns = monotonic_ns()
        self._time_s = time.time() if log is not None else 0.0

    @property
    def key_name(self) -> str:
        if self.usage is not None:
            return self.usage.key.name
        return UNKNOWN if self._has_unknown_key else ANONYMOUS

    @property
    def actor(self) -> str:
        """Who asks, in the words of the audit lines."""
        return f"'{self.key_name}' at {self.peer} over {self._target.protocol}"

    def begin_request(self) -> None:
        """It, or one request of a stream; raises QuotaExceededError where the key has had its share."""
        if self.usage is not None and self._is_free:
            self.usage.stats.request_count += 1
        elif self.usage is not None:
            self.usage.begin_request(monotonic_ns())
            self._in_flight += 1
        self._request_count += 1

    def begin_message(self) -> None:
        """One request of a stream; raises AccessError as well where the key was removed meanwhile."""
        if self.look_again is not None:
            self.look_again()
        self.begin_request()

    def end_request(self) -> None:
        """One of them is answered, and others go on."""
        if self.usage is not None and self._in_flight:
            self._in_flight -= 1
            self.usage.end_requests(1)

    def count_received(self, size_bytes: int) -> None:
        """So much of its body has come."""
        self._received_bytes += size_bytes
        if self.usage is not None:
            self.usage.count_received(size_bytes, self._is_free)

    def count_sent(self, size_bytes: int) -> None:
        """So much of its answer is to be sent; that of a refusal is not held against the key."""
        self._sent_bytes += size_bytes
        if self.usage is not None and self._request_count:
            self.usage.count_sent(size_bytes, self._is_free)

    def end(self, is_cut_off: bool = False) -> None:
        """It is answered, or its client is gone; only the first time counts."""
        if self._is_ended:
            return
        self._is_ended = True
        if self.usage is not None and self._in_flight:
            self.usage.end_requests(self._in_flight)
        if self._log is not None:
            self._log.record(self._record(is_cut_off))

    def _record(self, is_cut_off: bool) -> AccessRecord:
        target = self._target
        if len(target.path) > _MAX_PATH:
            target = replace(target, path=_cut(target.path, _MAX_PATH), model="")
        return AccessRecord(
            self._time_s,
            self.peer,
            self.key_name,
            target,
            self.model if len(self.model) <= _MAX_MODEL else _cut(self.model, _MAX_MODEL),
            self.status,
            self._received_bytes,
            self._sent_bytes,
            monotonic_ns() - self._began_ns,
            self._request_count,
            is_cut_off,
        )


def _cut(text: str, length: int) -> str:
    return f"{text[:length]}..."
