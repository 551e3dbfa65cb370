"""Whatever happens in whatever order, each request is answered exactly once, and batches obey their rules."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trireme.config.model_config import QueuePolicy
from trireme.core.errors import InternalError, ServingError
from trireme.core.response import InferenceResponse

MAX_BATCH = 4
LEVELS = 2

EVENTS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, MAX_BATCH), st.sampled_from([(4,), (5,)]), st.integers(0, LEVELS)),
    st.tuples(st.just("finish"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 60)),
    st.tuples(st.just("advance"), st.integers(1, 60)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("detach"), st.integers(0, 1)),
    st.tuples(st.just("attach"), st.integers(0, 1)),
    st.tuples(st.just("reschedule"), st.integers(0, 3)),
)


class Story:
    """A scheduler under a list of events, and the checks that hold at every moment."""

    def __init__(self, bench: Any, options: dict[str, Any], has_defer: bool, is_batching: bool) -> None:
        self.bench = bench
        if is_batching:
            bench.batcher(defer=has_defer, model={"max_batch_size": MAX_BATCH}, **options)
        else:
            bench.build(max_batch_size=MAX_BATCH)
        self.instances = [bench.instance(name="model_0"), bench.instance(name="model_1", max_concurrency=2)]
        self.requests: list[Any] = []
        self.refused: set[str] = set()
        self.rerun: set[str] = set()

    def play(self, event: tuple[Any, ...]) -> None:
        getattr(self, event[0])(*event[1:])
        for instance in self.instances:
            assert len(instance.batches) <= instance.max_concurrency
            for batch in instance.batches:
                assert batch.size == sum(request.batch_size for request in batch.requests) <= MAX_BATCH
                assert len({request.inputs["INPUT0"].shape[1:] for request in batch.requests}) == 1

    def send(self, batch_size: int, shape: tuple[int, ...], priority: int) -> None:
        name = str(len(self.requests))
        request = self.bench.client.request(name, batch_size, shape, priority=priority)
        self.requests.append(request)
        try:
            self.bench.scheduler.enqueue(request)
        except ServingError:
            self.refused.add(name)

    def finish(self, number: int, has_failed: bool) -> None:
        running = [instance for instance in self.instances if instance.batches]
        if not running:
            return
        instance = running[number % len(running)]
        error = InternalError("failed") if has_failed else None
        instance.finish([InferenceResponse([], error) for _ in instance.batches[0].requests])

    def reschedule(self, number: int) -> None:
        running = [instance for instance in self.instances if instance.batches]
        if not running:
            return
        instance = running[number % len(running)]
        requests = instance.batches[0].requests
        self.bench.scheduler.reschedule(requests[0])
        self.rerun.add(requests[0].id)
        instance.finish([None, *(InferenceResponse([]) for _ in requests[1:])])

    def cancel(self, number: int) -> None:
        if self.requests:
            self.requests[number % len(self.requests)].cancel()

    def advance(self, us: int) -> None:
        self.bench.world.advance(us * 1_000)

    def turn(self) -> None:
        self.bench.run_deferred()

    def detach(self, number: int) -> None:
        self.bench.scheduler.detach(self.instances[number])

    def attach(self, number: int) -> None:
        self.bench.scheduler.attach(self.instances[number])

    def drain(self) -> None:
        for number in range(2):
            self.attach(number)
        for _ in range(3 * len(self.requests) + 3):
            self.turn()
            self.advance(1_000)
            for instance in self.instances:
                while instance.batches:
                    instance.finish()

    def check_end(self, is_ordered: bool) -> None:
        scheduler, answers = self.bench.scheduler, self.bench.client.answers
        for request in self.requests:
            finals = [response.is_final for response in answers[request.id]]
            assert finals == ([] if request.id in self.refused else [True])
        assert (scheduler.pending_count, scheduler.inflight_count, scheduler._queue.size) == (0, 0, 0)
        stats = self.bench.stats.snapshot()
        assert stats.success.count + stats.fail.count == len(self.requests) - len(self.refused)
        if is_ordered:
            succeeded = [name for name in self.bench.client.order if answers[name][0].error is None]
            assert succeeded == sorted(succeeded, key=int)

    def check_first_come_first_served(self) -> None:
        """Requests of one priority start in the order they came, but for those that ran again."""
        started: dict[int, list[int]] = {}
        by_name = {request.id: request for request in self.requests}
        moments = sorted(
            (order, name) for instance in self.instances for order, names in instance.starts for name in names
        )
        for _, name in moments:
            if name not in self.rerun:
                priority = by_name[name].priority or 1
                started.setdefault(priority, []).append(int(name))
        for numbers in started.values():
            assert numbers == sorted(numbers)


def watch_starts(story: Story) -> None:
    """Numbers the executions over all instances."""
    counter = [0]
    for instance in story.instances:
        instance.starts = []

        def execute(batch: Any, instance: Any = instance, run: Any = instance.execute) -> None:
            counter[0] += 1
            names = [request.id for request in batch.requests]
            instance.starts.append((counter[0], names))
            run(batch)

        instance.execute = execute


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(EVENTS, max_size=60),
    delay_us=st.sampled_from([0, 30]),
    preferred=st.sampled_from([(), (2,), (2, 3)]),
    timeout_us=st.sampled_from([0, 50]),
    max_queue_size=st.sampled_from([0, 3]),
    has_defer=st.booleans(),
    kind=st.sampled_from(["direct", "batching", "priorities", "ordered"]),
)
def test_every_request_is_answered_once_and_batches_obey_their_rules(
    new_bench: Any,
    events: list[tuple[Any, ...]],
    delay_us: int,
    preferred: tuple[int, ...],
    timeout_us: int,
    max_queue_size: int,
    has_defer: bool,
    kind: str,
) -> None:
    options: dict[str, Any] = {
        "preferred_batch_sizes": preferred,
        "max_queue_delay_us": delay_us,
        "default_queue_policy": QueuePolicy(default_timeout_us=timeout_us, max_queue_size=max_queue_size),
    }
    if kind == "priorities":
        options |= {"priority_levels": LEVELS, "default_priority_level": 1}
    if kind == "ordered":
        options |= {"preserve_ordering": True}
    story = Story(new_bench(), options, has_defer, is_batching=kind != "direct")
    watch_starts(story)
    for event in events:
        story.play(event)
    story.drain()
    story.check_end(is_ordered=kind == "ordered")
    if kind == "priorities":
        story.check_first_come_first_served()
    else:
        for request in story.requests:
            request.priority = 1
        story.check_first_come_first_served()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(EVENTS, max_size=60),
    timeout_us=st.integers(1, 80),
    delays=st.booleans(),
)
def test_timeouts_with_overrides_lose_nobody(
    new_bench: Any, events: list[tuple[Any, ...]], timeout_us: int, delays: bool
) -> None:
    policy = QueuePolicy(default_timeout_us=timeout_us, allow_timeout_override=True, delays_on_timeout=delays)
    bench = new_bench()
    story = Story(bench, {"default_queue_policy": policy, "max_queue_delay_us": 20}, False, is_batching=True)
    make = bench.client.request
    bench.client.request = lambda *args, **fields: make(*args, timeout_us=len(story.requests) % 90, **fields)
    for event in events:
        story.play(event)
    story.drain()
    story.check_end(is_ordered=False)
