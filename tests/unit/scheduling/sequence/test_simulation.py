"""Many sequences at once, with workers that die, clients that cancel and time that passes: no answer is ever wrong."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trireme.config.model_config import TensorConfig
from trireme.config.sequence_config import ControlConfig, OldestStrategyConfig, SequenceBatchingConfig, StateConfig
from trireme.core.errors import InternalError, ServingError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

MS = 1_000_000
CLIENTS = 64
MAX_BATCH = 4
START, END = 1, 2
CONTROLS = (
    *(ControlConfig(kind, f"CONTROL_SEQUENCE_{kind}", "INT32", 0, 1) for kind in ("START", "END", "READY")),
    ControlConfig("CORRID", "CONTROL_SEQUENCE_CORRID", "UINT64"),
)
STATES = (StateConfig("SUM_IN", "SUM_OUT", "INT32", (1,), (1,)),)
STRATEGIES = {
    "direct": {},
    "direct with delay": {"max_queue_delay_us": 500, "minimum_slot_utilization": 0.75},
    "oldest": {"oldest": OldestStrategyConfig(6)},
    "oldest in order": {"oldest": OldestStrategyConfig(9, (2, 4), 300, True)},
}


class Story:
    """A scheduler with two accumulators, and clients who know what each answer must be."""

    def __init__(self, bench: Any, random: Random, strategy: str, has_state: bool) -> None:
        self.bench, self.random = bench, random
        self.is_direct = strategy.startswith("direct")
        self.has_state = has_state
        config = SequenceBatchingConfig(
            max_idle_us=20_000, controls=CONTROLS, states=STATES if has_state else (), **STRATEGIES[strategy]
        )
        inputs = {"INPUT0": TensorConfig("INPUT0", "INT32", (1,))}
        bench.build(sequence_batching=config, max_batch_size=MAX_BATCH, inputs=inputs)
        self.instances = [bench.instance(name=f"model_{number}") for number in range(2)]
        self.memory: dict[int, dict[Any, int]] = {id(instance): {} for instance in self.instances}
        self.alive = set(map(id, self.instances))
        self.totals = [0] * CLIENTS
        self.must_start = [True] * CLIENTS
        self.expected: dict[str, tuple[int, int]] = {}  # the client, and the right answer
        self.requests: list[Any] = []
        self.refused: set[str] = set()
        self.seen: set[str] = set()
        self.homes: dict[int, tuple[int, int]] = {}  # where a sequence runs: instance and slot
        self.executed: dict[int, list[int]] = {}
        self.right_count = 0

    def play(self) -> None:
        name = self.random.choices(
            ("send", "finish", "cancel", "advance", "kill", "revive"), weights=(60, 40, 2, 12, 1, 4)
        )[0]
        getattr(self, name)()
        self.read_answers()
        self.check_batches()

    def send(self) -> None:
        client = self.random.randrange(CLIENTS)
        value = self.random.randrange(1, 100)
        flags = START if self.must_start[client] else 0
        if self.random.random() < 0.2:
            flags |= END
        self.totals[client] = value + (0 if flags & START else self.totals[client])
        name = str(len(self.requests))
        request = self.bench.client.request(name, correlation_id=client + 1, flags=flags)
        request.inputs = {"INPUT0": Tensor("INPUT0", "INT32", (1, 1), struct.pack("<i", value))}
        if self.random.random() < 0.1:
            request.timeout_us = 5_000
        self.requests.append(request)
        self.expected[name] = (client, self.totals[client])
        self.must_start[client] = bool(flags & END)
        refusal = self.refusal_of(request)
        if refusal is not None:
            assert "must specify the START flag" in refusal.message or "ended early" in refusal.message
            assert not flags & START
            self.refused.add(name)
            self.must_start[client] = True

    def refusal_of(self, request: Any) -> ServingError | None:
        try:
            self.bench.scheduler.enqueue(request)
        except ServingError as error:
            return error
        return None

    def finish(self) -> None:
        running = [instance for instance in self.instances if instance.batches]
        if running:
            instance = self.random.choice(running)
            memory = self.memory[id(instance)]
            instance.finish([self.execute(request, memory) for request in instance.batches[0].requests])

    def execute(self, request: Any, memory: dict[Any, int]) -> InferenceResponse:
        def read(name: str) -> int:
            return int.from_bytes(request.inputs[name].data, "little")

        key = read("CORRID")
        if not read("READY"):
            assert (key, read("START"), read("END")) == (0, 0, 0)
            return InferenceResponse([])
        if self.has_state:
            total = read("SUM_IN") + read("INPUT0")
        else:
            total = (0 if read("START") else memory[key]) + read("INPUT0")
            memory[key] = total
            if read("END"):
                del memory[key]
        data = struct.pack("<i", total)
        outputs = [Tensor("OUTPUT0", "INT32", (1, 1), data)]
        if self.has_state:
            outputs.append(Tensor("SUM_OUT", "INT32", (1, 1), data))
        return InferenceResponse(outputs)

    def cancel(self) -> None:
        if self.requests:
            self.requests[-self.random.randrange(1, 1 + min(200, len(self.requests)))].cancel()

    def advance(self) -> None:
        self.bench.world.advance(self.random.choice((50_000, MS, 6 * MS, 25 * MS)))

    def kill(self) -> None:
        instance = self.random.choice(self.instances)
        if id(instance) in self.alive:
            self.alive.discard(id(instance))
            self.bench.scheduler.detach(instance)
            self.memory[id(instance)] = {}
            while instance.batches:
                error = InternalError("killed")
                instance.finish([InferenceResponse.of_error(error) for _ in instance.batches[0].requests])

    def revive(self) -> None:
        for instance in self.instances:
            if id(instance) not in self.alive:
                self.alive.add(id(instance))
                self.bench.scheduler.attach(instance)

    def read_answers(self) -> None:
        for name in [name for name, answers in self.bench.client.answers.items() if answers and name not in self.seen]:
            self.seen.add(name)
            [response] = self.bench.client.answers[name]
            client, total = self.expected[name]
            if response.error is not None:
                self.must_start[client] = True
                continue
            [output] = response.outputs
            assert (output.name, struct.unpack("<i", output.data)) == ("OUTPUT0", (total,))
            self.right_count += 1

    def check_batches(self) -> None:
        running: list[int] = []
        for instance in self.instances:
            assert len(instance.batches) <= 1
            for batch in instance.batches:
                assert len(batch.requests) == batch.size <= MAX_BATCH
                real = [request for request in batch.requests if request.correlation_id]
                assert real
                assert batch.requests[-1] is real[-1]
                assert self.is_direct or real == batch.requests
                running += [request.correlation_id for request in real]
                for slot, request in enumerate(batch.requests):
                    self.check_place(request, (id(instance), slot if self.is_direct else 0))
        assert len(running) == len(set(running))

    def check_place(self, request: Any, place: tuple[int, int]) -> None:
        """Requests run in order, and a sequence stays where it began."""
        if not request.correlation_id:
            return
        executed = self.executed.setdefault(request.correlation_id, [])
        if executed and executed[-1] == int(request.id):
            return
        assert not executed or executed[-1] < int(request.id)
        executed.append(int(request.id))
        if not request.flags & START:
            assert self.homes[request.correlation_id] == place
        self.homes[request.correlation_id] = place

    def end(self) -> None:
        self.revive()
        for _ in range(2 * len(self.requests)):
            if self.bench.scheduler.inflight_count == 0:
                break
            self.bench.world.advance(MS)
            self.finish()
            self.finish()
            self.read_answers()
        self.bench.world.advance(25 * MS)
        scheduler = self.bench.scheduler
        assert (scheduler.pending_count, scheduler.inflight_count) == (0, 0)
        assert not scheduler._running_sequences.by_request
        assert not scheduler._table.by_id
        assert not any(slots.sequences or slots.ready for slots in scheduler._table.instance_slots.values())
        answered = {name for name, answers in self.bench.client.answers.items() if len(answers) == 1}
        assert answered | self.refused == set(self.expected)
        assert not answered & self.refused
        stats = self.bench.stats.snapshot()
        assert stats.success.count == self.right_count == stats.inference_count
        assert stats.success.count + stats.fail.count == len(answered)


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
def test_every_answer_is_the_plain_sum_or_an_error(new_bench: Any, strategy: str, has_state: bool, seed: int) -> None:
    story = Story(new_bench(), Random(seed), strategy, has_state)
    for _ in range(1_500):
        story.play()
    story.end()
    assert story.right_count > 50
