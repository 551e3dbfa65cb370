"""What clients did under the name of their key, as metrics."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from trireme.observe.prometheus import PageWriter, label_text


class KeyStats:
    """The numbers of one name, which go on when its key is changed."""

    __slots__ = ("in_flight", "received_bytes", "refusals", "request_count", "sent_bytes")

    def __init__(self) -> None:
        self.request_count = 0
        self.in_flight = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.refusals: dict[str, int] = {}  # by reason

    def count_refusal(self, reason: str) -> None:
        """A request was not let in; the reason is the name of the limit, or `group`."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1


class _Family(NamedTuple):
    name: str
    kind: str
    help_text: str
    read: Callable[[KeyStats], int]


_FAMILIES: Final = (
    _Family("trireme_key_requests_total", "counter", "Requests that were let in, by key", attrgetter("request_count")),
    _Family("trireme_key_requests_in_flight", "gauge", "Requests begun and not answered", attrgetter("in_flight")),
    _Family("trireme_key_received_bytes_total", "counter", "Bytes of their bodies", attrgetter("received_bytes")),
    _Family("trireme_key_sent_bytes_total", "counter", "Bytes of the answers", attrgetter("sent_bytes")),
)


class KeyMetrics:
    """The numbers of all names, and of those who had none."""

    __slots__ = ("_stats", "unauthenticated_count")

    def __init__(self) -> None:
        self._stats: dict[str, KeyStats] = {}
        self.unauthenticated_count = 0
        """Requests without a key, or with one that nobody has."""

    def of(self, name: str) -> KeyStats:
        """The numbers of a name, from zero where it is new."""
        return self._stats.setdefault(name, KeyStats())

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        for family in _FAMILIES:
            writer.family(family.name, family.kind, family.help_text)
            for name, stats in self._stats.items():
                writer.sample(label_text({"key": name}), family.read(stats))
        writer.family("trireme_key_refusals_total", "counter", "Requests that were not let in, by key and reason")
        for name, stats in self._stats.items():
            for reason, count in stats.refusals.items():
                writer.sample(label_text({"key": name, "reason": reason}), count)
        writer.family("trireme_unauthenticated_total", "counter", "Requests without a key, or with one nobody has")
        writer.sample("", self.unauthenticated_count)
