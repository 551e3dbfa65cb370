"""What one name has used of its quota; kept when the key file changes."""

from __future__ import annotations

from math import ceil

from trireme.access.api_key import ApiKey
from trireme.access.key_metrics import KeyStats
from trireme.core.errors import QuotaExceededError

_SECOND_NS = 1_000_000_000


class Allowance:
    """So much per second, up to a second's worth at once. It may be overdrawn: then it is empty for so much longer."""

    __slots__ = ("_filled_ns", "_level", "_per_second")

    def __init__(self, per_second: float, now_ns: int) -> None:
        self._per_second = per_second
        self._level = self._capacity
        self._filled_ns = now_ns

    @property
    def _capacity(self) -> float:
        return max(1.0, self._per_second)

    def change(self, per_second: float) -> None:
        """Another rate from now on; what was used stays used."""
        self._per_second = per_second
        self._level = min(self._level, self._capacity)

    def wait_s(self, wanted: float, now_ns: int) -> float:
        """How long until so much is there; 0 where it is."""
        elapsed_ns = now_ns - self._filled_ns
        self._filled_ns = now_ns
        self._level = min(self._capacity, self._level + self._per_second * elapsed_ns / _SECOND_NS)
        return max(0.0, (wanted - self._level) / self._per_second)

    def take(self, amount: float) -> None:
        """Uses so much of it."""
        self._level -= amount


class KeyUsage:
    """One name, what its key allows now, and what was used; changed on the event loop's thread."""

    __slots__ = ("_bytes", "_requests", "key", "stats")

    def __init__(self, key: ApiKey, stats: KeyStats, now_ns: int) -> None:
        self.key = key
        self.stats = stats
        self._requests: Allowance | None = None
        self._bytes: Allowance | None = None
        self.follow(key, now_ns)

    def follow(self, key: ApiKey, now_ns: int) -> None:
        """The key file was read again."""
        self.key = key
        self._requests = _changed(self._requests, key.quota.requests_per_second, now_ns)
        self._bytes = _changed(self._bytes, key.quota.bytes_per_second, now_ns)

    def begin_request(self, now_ns: int) -> None:
        """Counts a request in; raises QuotaExceededError where the name has had its share."""
        most = self.key.quota.requests_in_flight
        if most is not None and self.stats.in_flight >= most:
            self._refuse("requests_in_flight", most, 1.0)
        if self._requests is not None:
            wait_s = self._requests.wait_s(1.0, now_ns)
            if wait_s > 0.0:
                self._refuse("requests_per_second", self.key.quota.requests_per_second, wait_s)
        if self._bytes is not None:
            wait_s = self._bytes.wait_s(1.0, now_ns)
            if wait_s > 0.0:
                self._refuse("bytes_per_second", self.key.quota.bytes_per_second, wait_s)
        if self._requests is not None:
            self._requests.take(1.0)
        self.stats.in_flight += 1
        self.stats.request_count += 1

    def end_requests(self, count: int) -> None:
        """So many are answered, or given up."""
        self.stats.in_flight -= count

    def count_received(self, size_bytes: int, is_free: bool = False) -> None:
        """So much of requests has come; the quota does not know of it where it is free."""
        self.stats.received_bytes += size_bytes
        if self._bytes is not None and not is_free:
            self._bytes.take(size_bytes)

    def count_sent(self, size_bytes: int, is_free: bool = False) -> None:
        """So much of answers is to be sent; the quota does not know of it where it is free."""
        self.stats.sent_bytes += size_bytes
        if self._bytes is not None and not is_free:
            self._bytes.take(size_bytes)

    def _refuse(self, limit: str, value: float | None, wait_s: float) -> None:
        self.stats.count_refusal(limit)
        retry_after_s = max(1, ceil(wait_s))
        raise QuotaExceededError(
            f"the key '{self.key.name}' has used up its quota: {limit} is {value:g}; try again in {retry_after_s} s",
            retry_after_s=retry_after_s,
        )


def _changed(allowance: Allowance | None, per_second: float | None, now_ns: int) -> Allowance | None:
    if per_second is None:
        return None
    if allowance is None:
        return Allowance(per_second, now_ns)
    allowance.change(per_second)
    return allowance
