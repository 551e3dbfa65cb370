"""Quotas of a key, on a clock that the test turns."""

from __future__ import annotations

import pytest

from trireme.access.api_key import ApiKey, Quota
from trireme.access.key_metrics import KeyStats
from trireme.access.tracked_request import RequestTarget, TrackedRequest
from trireme.access.usage import KeyUsage
from trireme.core.errors import QuotaExceededError

SECOND = 1_000_000_000


def usage_of(quota: Quota) -> KeyUsage:
    return KeyUsage(key_of(quota), KeyStats(), 0)


def key_of(quota: Quota) -> ApiKey:
    return ApiKey("ci", (), frozenset(), quota)


def refusal(usage: KeyUsage, now_ns: int) -> QuotaExceededError:
    with pytest.raises(QuotaExceededError) as caught:
        usage.begin_request(now_ns)
    return caught.value


def test_without_a_quota_everything_passes_and_is_counted() -> None:
    usage = usage_of(Quota())
    for _ in range(1000):
        usage.begin_request(0)
    usage.count_received(10**12)
    usage.count_sent(5)
    assert (usage.stats.request_count, usage.stats.in_flight) == (1000, 1000)
    assert (usage.stats.received_bytes, usage.stats.sent_bytes) == (10**12, 5)
    assert usage.stats.refusals == {}


def test_a_second_of_requests_may_come_at_once_and_then_one_by_one() -> None:
    usage = usage_of(Quota(requests_per_second=4))
    for _ in range(4):
        usage.begin_request(0)
    error = refusal(usage, 0)
    assert error.message == "the key 'ci' has used up its quota: requests_per_second is 4; try again in 1 s"
    assert error.retry_after_s == 1
    refusal(usage, SECOND // 4 - 1)
    usage.begin_request(SECOND // 4)
    refusal(usage, SECOND // 4)
    assert usage.stats.refusals == {"requests_per_second": 3}
    assert usage.stats.request_count == 5


def test_less_than_one_request_per_second_says_when_to_come_again() -> None:
    usage = usage_of(Quota(requests_per_second=0.1))
    usage.begin_request(0)
    assert refusal(usage, 0).retry_after_s == 10
    assert refusal(usage, 9 * SECOND).retry_after_s == 1
    usage.begin_request(10 * SECOND)


def test_an_idle_key_gathers_no_more_than_a_second() -> None:
    usage = usage_of(Quota(requests_per_second=2))
    usage.begin_request(3600 * SECOND)
    usage.begin_request(3600 * SECOND)
    refusal(usage, 3600 * SECOND)


def test_a_large_request_passes_and_is_paid_for_afterwards() -> None:
    usage = usage_of(Quota(bytes_per_second=100))
    usage.begin_request(0)
    usage.count_received(300)
    usage.count_sent(800)
    assert refusal(usage, 0).retry_after_s == 11
    assert "bytes_per_second is 100" in refusal(usage, 10 * SECOND).message
    usage.begin_request(11 * SECOND)
    assert usage.stats.refusals == {"bytes_per_second": 2}


def test_as_many_requests_as_are_answered_may_begin() -> None:
    usage = usage_of(Quota(requests_in_flight=2))
    usage.begin_request(0)
    usage.begin_request(0)
    assert "requests_in_flight is 2" in refusal(usage, 0).message
    usage.end_requests(1)
    usage.begin_request(0)
    refusal(usage, 0)
    assert usage.stats.in_flight == 2


def test_a_refused_request_uses_nothing_up() -> None:
    usage = usage_of(Quota(requests_per_second=2, requests_in_flight=1))
    usage.begin_request(0)
    refusal(usage, 0)
    usage.end_requests(1)
    usage.begin_request(0)


def test_a_changed_quota_holds_at_once_and_what_was_used_stays_used() -> None:
    usage = usage_of(Quota(requests_per_second=2))
    usage.begin_request(0)
    usage.begin_request(0)
    usage.follow(key_of(Quota(requests_per_second=20)), 0)
    refusal(usage, 0)
    usage.begin_request(SECOND // 20)
    usage.follow(key_of(Quota()), 0)
    usage.begin_request(0)
    usage.follow(key_of(Quota(requests_in_flight=1)), 0)
    refusal(usage, 0)


def test_health_takes_nothing_of_any_quota_and_is_counted() -> None:
    usage = usage_of(Quota(requests_per_second=1, bytes_per_second=10, requests_in_flight=1))
    usage.begin_request(0)
    for group in ("health", "inference"):
        tracked = TrackedRequest(RequestTarget("HTTP", "GET", "/", group), "peer", usage, None)
        if group == "inference":
            with pytest.raises(QuotaExceededError):
                tracked.begin_request()
            continue
        tracked.begin_request()
        tracked.count_received(1000)
        tracked.count_sent(1000)
        tracked.end()
    assert (usage.stats.request_count, usage.stats.in_flight) == (2, 1)
    assert (usage.stats.received_bytes, usage.stats.sent_bytes) == (1000, 1000)
    usage.end_requests(1)
    usage.begin_request(SECOND)
