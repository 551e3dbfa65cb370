"""Sixty-four sequences at once while workers are killed, requests expire, clients leave and sequences fall silent.

Every answer that comes is right, every failure has a cause that really happened, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from running_server import RunningServer, write_model
from tritonclient.utils import InferenceServerException

CLIENTS = 64
STORM_S = 3
IDLE_S = 0.25
SILENCE_S = 0.6  # a pause that no server can mistake for haste
PATIENCE_S = 15
LOST = "ended early because its model instance is gone; begin it again with the START flag"
REFUSED = "must specify the START flag on the first request of the sequence"
EXPIRED = "timeout of the corresponding sequence has been expired"
DIED = re.compile(r"Stub process '\w+' is not healthy\. The worker process \(pid (\d+)\) was killed by signal 9")

ADD = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        time.sleep(0.004)
        return [self.add(request) for request in requests]

    def add(self, request):
        inputs = {tensor.name(): tensor.as_numpy().reshape(-1)[0] for tensor in request.inputs()}
        total = 0
        if "SUM_IN" in inputs:
            total = inputs["SUM_IN"] + inputs["INPUT"]
        elif inputs["READY"]:
            key = inputs["ID"]
            total = self.sums[key] = (0 if inputs["START"] else self.sums[key]) + inputs["INPUT"]
            if inputs["END"]:
                del self.sums[key]
        outputs = [pb_utils.Tensor("OUTPUT", np.array([[total, os.getpid()]], np.int32))]
        outputs.append(pb_utils.Tensor("SUM_OUT", np.array([[total]], np.int32)))
        wanted = request.requested_output_names()
        return pb_utils.InferenceResponse([output for output in outputs if output.name() in wanted])
"""
CONFIG = f"""
backend: "python"
max_batch_size: 6
input [{{ name: "INPUT" data_type: TYPE_INT32 dims: [1] }}]
output [{{ name: "OUTPUT" data_type: TYPE_INT32 dims: [2] }}]
instance_group [{{ count: 2 kind: KIND_CPU }}]
sequence_batching {{
  max_sequence_idle_microseconds: {int(IDLE_S * 1e6)}
"""
SWITCHES = "".join(
    f'control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} bool_false_true: [false, true] }} }}\n'
    for kind in ("START", "END", "READY")
)
ID = 'control_input {{ name: "ID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: {} }} }}\n'
STATE = 'state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [1] }\n'
OLDEST = "oldest {{ max_candidate_sequences: {} preserve_ordering: {} max_queue_delay_microseconds: 300 }}\n"
STRATEGIES = {
    "direct": "direct { }\n" + SWITCHES + ID.format("TYPE_UINT64"),
    "oldest with names": OLDEST.format(8, "false") + SWITCHES + ID.format("TYPE_STRING"),
    "oldest with a state": OLDEST.format(7, "true") + STATE,
}


class Storm:
    """What has been done to the server, and what its clients have seen."""

    def __init__(self, server: RunningServer, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.killed: set[int] = set()
        self.seen: Counter[str] = Counter()
        self.abandoned_count = 0
        self.is_over = False
        self.grpc = tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
        self.http = tritonclient.http.aio.InferenceServerClient(f"127.0.0.1:{server.ports['http']}")

    async def rage(self, clients: list[Client]) -> None:
        lives = [asyncio.create_task(client.live()) for client in clients]
        began = time.monotonic()
        while time.monotonic() - began < STORM_S:
            await asyncio.sleep(self.random.uniform(0.3, 0.7))
            workers = self.server.children()
            if workers:
                victim = self.random.choice(workers)
                self.killed.add(victim)
                os.kill(victim, signal.SIGKILL)
        self.is_over = True
        await asyncio.gather(*lives)

    async def close(self) -> None:
        await self.grpc.close()
        await self.http.close()


class Client:
    """One correlation id, used for one sequence after another; it knows what each answer must be."""

    def __init__(self, storm: Storm, number: int, has_name: bool) -> None:
        self.storm = storm
        self.random = random.Random(storm.random.random())
        self.id: int | str = f"client-{number}" if has_name else number + 1
        self.door = Stream(storm) if number % 3 else Unary(storm, is_http=number % 2 == 0)

    async def live(self) -> None:
        while not self.storm.is_over:
            await Sequence(self, is_wild=True).run()

    async def finish_one(self) -> None:
        """A whole sequence in calm; on a busy machine one may be taken for idle, and is begun again."""
        while True:
            sequence = Sequence(self, is_wild=False)
            await sequence.run()
            if sequence.done_count == len(sequence.values):
                return

    async def close(self) -> None:
        await self.door.close()


class Sequence:
    """From START to END, or to the first trouble."""

    def __init__(self, client: Client, *, is_wild: bool) -> None:
        self.storm, self.door, self.random = client.storm, client.door, client.random
        self.id = client.id
        self.is_wild = is_wild
        self.values = [self.random.randrange(1_000_000) for _ in range(self.random.randrange(1, 9))]
        self.done_count = 0
        self.worker: int | None = None
        self.has_timeout = self.is_over = False
        self.answered_s = self.sent_s = time.monotonic()

    async def run(self) -> None:
        while self.done_count < len(self.values) and not self.is_over:
            await self.send_some()

    async def send_some(self) -> None:
        was_silent = self.is_wild and self.done_count > 0 and self.random.random() < 0.02
        await asyncio.sleep(SILENCE_S if was_silent else self.random.choice((0, 0, 0.01)))
        count = self.random.randrange(1, 5) if isinstance(self.door, Stream) else 1
        burst = [self.step(index) for index in range(self.done_count, min(self.done_count + count, len(self.values)))]
        before_s, self.sent_s = self.sent_s, time.monotonic()
        if self.is_wild and self.random.random() < 0.04:
            self.is_over = True
            self.storm.abandoned_count += len(burst)
            await self.door.abandon(burst, self.random.uniform(0, 0.02))
            return
        async with asyncio.timeout(PATIENCE_S):
            results, errors = await self.door.exchange(burst)
        self.take(results)
        may_be_idle = time.monotonic() - before_s >= IDLE_S
        for error in errors:
            self.explain(error, errors, may_be_idle)
        assert not was_silent or errors, "a sequence that was idle for too long went on"
        assert len(results) + len(errors) == len(burst)

    def step(self, index: int) -> dict[str, Any]:
        entry: dict[str, Any] = {"request_id": str(index), "sequence_id": self.id, "inputs": self.values[index]}
        entry |= {"sequence_start": index == 0, "sequence_end": index == len(self.values) - 1}
        if self.is_wild and self.random.random() < 0.1:
            entry["timeout"] = self.random.randrange(1_000, 60_000)
            self.has_timeout = True
        return entry

    def take(self, results: list[Any]) -> None:
        for result in results:
            total, worker = result.as_numpy("OUTPUT").reshape(-1).tolist()
            assert request_id(result) == str(self.done_count), "an answer is missing or overtook another"
            self.done_count += 1
            assert total == sum(self.values[: self.done_count])
            assert self.worker in (None, worker), "the sequence moved to another instance"
            self.worker = worker
            self.storm.seen["right"] += 1

    def explain(self, error: InferenceServerException, errors: list[Any], may_be_idle: bool) -> None:
        """Every error must follow from what was done to this sequence."""
        self.is_over = True
        text, storm = error.message(), self.storm
        others = [other.message() for other in errors if other is not error]
        died = DIED.search(text)
        if died is not None:
            assert int(died[1]) in storm.killed
            assert self.worker in (None, int(died[1])), "another instance's death ended the sequence"
            storm.seen["died"] += 1
        elif LOST in text:
            assert self.worker in storm.killed or any(DIED.search(other) for other in others)
            storm.seen["lost"] += 1
        elif EXPIRED in text:
            assert self.has_timeout
            assert not self.done_count, "a sequence that had begun was in the backlog"
            storm.seen["expired"] += 1
        else:
            assert REFUSED in text
            has_cause = may_be_idle or self.worker in storm.killed
            assert has_cause or any(REFUSED not in other for other in others), f"{text} without a cause"
            storm.seen["refused"] += 1


class Stream:
    """A gRPC stream: several requests of a sequence on their way at once."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.answers: Any = None

    async def exchange(self, burst: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
        self.send(burst)
        pairs = [await anext(self.answers) for _ in burst]
        return [result for result, error in pairs if error is None], [error for _, error in pairs if error is not None]

    async def abandon(self, burst: list[dict[str, Any]], after_s: float) -> None:
        self.send(burst)
        await asyncio.sleep(after_s)
        self.answers.cancel()
        self.answers, self.queue = None, asyncio.Queue()

    def send(self, burst: list[dict[str, Any]]) -> None:
        if self.answers is None:
            self.answers = self.storm.grpc.stream_infer(self.requests(self.queue))
        for entry in burst:
            inputs = [tensor(tritonclient.grpc, entry["inputs"])]
            self.queue.put_nowait({**entry, "model_name": "adder", "inputs": inputs})

    async def requests(self, queue: asyncio.Queue[dict[str, Any] | None]) -> AsyncIterator[dict[str, Any]]:
        while (entry := await queue.get()) is not None:
            yield entry

    async def close(self) -> None:
        if self.answers is not None:
            self.queue.put_nowait(None)
            assert [answer async for answer in self.answers] == []


class Unary:
    """One request after another, by HTTP or by single gRPC calls."""

    def __init__(self, storm: Storm, *, is_http: bool) -> None:
        self.is_http = is_http
        self.client, self.module = (storm.http, tritonclient.http) if is_http else (storm.grpc, tritonclient.grpc)

    async def exchange(self, burst: list[dict[str, Any]], **arguments: Any) -> tuple[list[Any], list[Any]]:
        (entry,) = burst
        inputs = [tensor(self.module, entry["inputs"])]
        try:
            return [await self.client.infer("adder", **{**entry, "inputs": inputs}, **arguments)], []
        except InferenceServerException as error:
            return [], [error]

    async def abandon(self, burst: list[dict[str, Any]], after_s: float) -> None:
        """A deadline that the server sees, or a connection that is closed."""
        try:
            if self.is_http:
                await asyncio.wait_for(self.exchange(burst), after_s)
            else:
                await self.exchange(burst, client_timeout=after_s)
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Nothing is open between two requests."""


def tensor(module: Any, value: int) -> Any:
    entry = module.InferInput("INPUT", [1, 1], "INT32")
    entry.set_data_from_numpy(np.array([[value]], np.int32))
    return entry


def request_id(result: Any) -> str:
    response = result.get_response()
    return str(response["id"] if isinstance(response, dict) else response.id)


def counts(server: RunningServer) -> tuple[int, int]:
    """Requests that succeeded and that failed."""
    numbers = server.statistics("adder")["inference_stats"]
    return numbers["success"].get("count", 0), numbers["fail"].get("count", 0)


async def play(server: RunningServer, seed: int, has_names: bool) -> None:
    storm = Storm(server, seed)
    clients = [Client(storm, number, has_names) for number in range(CLIENTS)]
    await storm.rage(clients)
    server.until(lambda: len(server.children()) == 2 and server.status("/v2/models/adder/ready") == 200)
    server.until(lambda: server.value("nv_inference_pending_request_count", model="adder", version="1") == 0)
    seen, abandoned = storm.seen, storm.abandoned_count
    failures = seen["died"] + seen["lost"] + seen["expired"]  # what is refused was never taken
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*[client.finish_one() for client in clients])
    for client in clients:
        await client.close()
    await storm.close()
    succeeded, failed = counts(server)
    assert failures == seen["died"] + seen["lost"] + seen["expired"], "something failed after the storm"
    assert seen["right"] <= succeeded <= seen["right"] + abandoned
    # A request whose sequence was lost before it came is refused as it arrives, and was never taken either.
    assert failures - seen["lost"] <= failed <= failures + abandoned
    assert succeeded + failed <= seen["right"] + failures + abandoned
    assert len(storm.killed) >= 3
    assert min(seen[kind] for kind in ("right", "died", "expired", "refused")) > 0
    assert abandoned > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_storm_makes_an_answer_wrong(tmp_path: Path, strategy: str) -> None:
    write_model(tmp_path, "adder", ADD, CONFIG + STRATEGIES[strategy] + "}\n")
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        asyncio.run(play(server, 7, "TYPE_STRING" in STRATEGIES[strategy]))
        assert "Traceback" not in server.log
