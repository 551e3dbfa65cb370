"""The queue's priority levels: as many as a configuration can name, and no more kept than are in use."""

from __future__ import annotations

import random
from collections import deque

from trireme.config.model_config import DynamicBatchingConfig, QueuePolicy
from trireme.core.request import InferenceRequest
from trireme.scheduling.queue import LongLine, RequestQueue

MOST_LEVELS = 2**64 - 1


def request_of(priority: int) -> InferenceRequest:
    request = InferenceRequest("model", "", str(priority), {}, lambda response: None)
    request.priority = priority
    return request


def queue_of(policies: dict[int, QueuePolicy] | None = None, levels: int = MOST_LEVELS) -> RequestQueue:
    batching = DynamicBatchingConfig(
        (), priority_levels=levels, default_priority_level=7, priority_queue_policies=policies or {}
    )
    return RequestQueue(batching)


def test_a_model_may_have_every_level_that_a_configuration_can_name() -> None:
    queue = queue_of()
    for priority in (MOST_LEVELS, 3, 0, 1, 8):
        queue.push(request_of(priority))

    assert [request.id for request in queue.in_order()] == ["1", "3", "0", "8", str(MOST_LEVELS)]
    assert [request.id for request in queue.take(5)] == ["1", "3", "0", "8", str(MOST_LEVELS)]
    assert queue.count == 0


def test_levels_that_are_empty_again_are_forgotten() -> None:
    queue = queue_of()
    for priority in range(1, 10_000):
        queue.push(request_of(priority))
        queue.take(1)

    assert len(queue._levels) <= 64


def test_many_levels_in_use_keep_their_order() -> None:
    queue = queue_of()
    priorities = list(range(1, 2_000))
    random.Random(7).shuffle(priorities)
    for priority in priorities:
        queue.push(request_of(priority))

    assert queue.remove(next(request for request in queue.in_order() if request.priority == 1_000))
    assert [request.priority for request in queue.take(1_998)] == [*range(1, 1_000), *range(1_001, 2_000)]


def test_timeouts_count_where_a_level_can_have_them() -> None:
    timed = QueuePolicy(default_timeout_us=5)

    assert not queue_of().has_timeouts
    assert queue_of({9: timed}).has_timeouts
    batching = DynamicBatchingConfig((), default_queue_policy=timed, priority_queue_policies={})
    assert RequestQueue(batching).has_timeouts


def test_a_request_that_leaves_a_long_queue_is_not_searched_for() -> None:
    queue = RequestQueue()
    requests = [InferenceRequest("model", "", str(place), {}, lambda response: None) for place in range(5_000)]
    for request in requests:
        queue.push(request)

    leaving = requests[-2_000:]
    assert all(queue.remove(request) for request in leaving)
    assert not queue.remove(leaving[0])
    assert queue._only is not None
    assert type(queue._only.waiting) is LongLine, "a deque would be searched"
    assert queue.take(2_900) == requests[:2_900]
    assert queue.remove(requests[2_900])
    assert type(queue._only.waiting) is deque, "few are found as quickly there, and taken more quickly"
    assert queue.take(5_000) == requests[2_901:3_000]


def test_whoever_comes_and_leaves_in_whatever_order_a_queue_keeps_its_own() -> None:
    chance = random.Random(11)
    queue, expected = RequestQueue(), list[InferenceRequest]()
    for _ in range(300):
        for _ in range(chance.randrange(60)):
            expected.append(request_of(0))
            queue.push(expected[-1])
        for _ in range(chance.randrange(40)):
            if expected:
                assert queue.remove(expected.pop(chance.randrange(len(expected))))
        count = chance.randrange(min(30, len(expected)) + 1)
        assert queue.take(count) == expected[:count]
        del expected[:count]
        assert list(queue.in_order()) == expected
        assert queue.count == queue.size == len(expected)
    assert queue.take(len(expected)) == expected
