"""What one process counts and another one tells."""

from __future__ import annotations

import mmap
import os

from trireme.app.leases.counts import BYTES, COUNT
from trireme.app.leases.shared_counts import SharedCounts
from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import BACKEND
from trireme.observe.latency import DEFAULT_BOUNDS_NS
from trireme.observe.stats import ModelStats


def test_the_server_has_counted_what_all_processes_have() -> None:
    server, front = ModelStats("m", 1), ModelStats("m", 1)
    alone = ModelStats("m", 1)
    ours = SharedCounts.create()
    theirs = SharedCounts(os.dup(ours.fd))
    for stats, others in ((server, ()), (front, (theirs,)), (front, ()), (front, (theirs,))):
        for recording in (stats, alone):
            recording.record_batch([request(), request()], 2, 400, 900, BatchTiming(10, 20, 30))
            recording.record_execution(3, BatchTiming(1, 2, 3))
            recording.record_failure(request(), BACKEND, 1000)
        for counts in others:
            counts.writer.write(front, 0)
        ours.bring_into(server)
    assert server.snapshot() == alone.snapshot()
    assert server.request_buckets == alone.request_buckets
    assert server.queue_buckets == alone.queue_buckets
    assert server.compute_buckets == alone.compute_buckets
    assert server.fail_counts == alone.fail_counts
    assert alone.slowest_ns <= server.slowest_ns <= DEFAULT_BOUNDS_NS[0]  # as far as buckets tell
    assert ours.request_count == 6
    ours.close()
    theirs.close()


def test_requests_of_all_lengths_and_batches_of_all_sizes_are_counted() -> None:
    server, front = ModelStats("m", 1), ModelStats("m", 1)
    ours = SharedCounts.create()
    theirs = SharedCounts(os.dup(ours.fd))
    lengths = [*DEFAULT_BOUNDS_NS, 2 * DEFAULT_BOUNDS_NS[-1]]
    for number in range(200):
        length = lengths[number * 7 % len(lengths)]
        timing = BatchTiming(lengths[number * 5 % len(lengths)], number % 3, 1)
        start_ns = 200 + lengths[number * 11 % len(lengths)]
        front.record_batch([request()] * (1 + number % 4), 1 + number % 13, start_ns, 100 + length, timing)
        if number % 3 == 0:  # several batches between two writings
            theirs.writer.write(front, 0)
            if number % 2 == 0:
                ours.bring_into(server)
    theirs.writer.write(front, 0)
    ours.bring_into(server)
    assert server.snapshot() == front.snapshot()
    assert server.request_buckets == front.request_buckets
    assert server.queue_buckets == front.queue_buckets
    assert server.compute_buckets == front.compute_buckets
    ours.close()
    theirs.close()


def test_only_what_has_changed_is_written() -> None:
    front = ModelStats("m", 1)
    counts = SharedCounts.create()
    front.record_batch([request()], 2, 400, 900, BatchTiming(10, 20, 30))
    counts.writer.write(front, 0)
    with mmap.mmap(counts.fd, COUNT * BYTES) as memory:
        first = memory[:]
        memory[11 * BYTES :] = bytes((COUNT - 11) * BYTES)  # all but the sums at the front
        front.record_batch([request()], 3, 400, 900, BatchTiming(10, 20, 30))
        counts.writer.write(front, 0)
        second = memory[:]
    before, now = ([*memoryview(text).cast("q")] for text in (first, second))
    changed = [now[at] for at in range(11, COUNT) if now[at]]
    assert sorted(changed) == [1, 2, 2, 2, 3, 10, 20, 30]  # a bucket of each kind, and the row of the other batch size
    assert [value for value in before[11:] if value] == [1, 1, 1, 2, 1, 10, 20, 30]
    counts.close()


def test_what_waits_is_shown_and_not_added() -> None:
    server, front = ModelStats("m", 1), ModelStats("m", 1)
    front.pending_count = lambda: 5
    ours = SharedCounts.create()
    theirs = SharedCounts(os.dup(ours.fd))
    theirs.writer.write(front, 0)
    ours.bring_into(server)
    assert ours.pending_count == 5
    assert server.pending_count() == 0
    ours.close()
    theirs.close()


def test_requests_that_another_process_has_are_shown_apart_from_the_counts() -> None:
    ours = SharedCounts.create()
    theirs = SharedCounts(os.dup(ours.fd))
    theirs.show_inflight(3)
    assert (ours.inflight_count, ours.is_shut) == (3, False)
    theirs.writer.write(ModelStats("m", 1), 2)
    assert (ours.inflight_count, ours.is_shut) == (2, False)
    ours.close()
    theirs.close()


def test_the_switch_is_seen_at_once_and_survives_counting() -> None:
    ours = SharedCounts.create()
    theirs = SharedCounts(os.dup(ours.fd))
    assert not theirs.is_shut
    ours.shut()
    assert theirs.is_shut
    theirs.writer.write(ModelStats("m", 1), 0)
    assert ours.is_shut
    ours.close()
    theirs.close()


def request() -> InferenceRequest:
    made = InferenceRequest("m", "", "", {}, ignore)
    made.arrival_ns, made.queue_ns = 100, 200
    return made


def ignore(response: InferenceResponse) -> None:
    """Nobody waits."""
