"""Streams of decoupled models: alone, behind a call from another model, and inside ensembles.

How many requests a step has at once, what ends the work, and what a step that dies costs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
from running_server import INT_CONFIG, RunningServer, write_ensemble, write_model

COUNT = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

STOPPED = os.path.join(os.path.dirname(__file__), "stopped")


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            wanted, pause_ms = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].tolist()
            sender = request.get_response_sender()
            for number in range(wanted):
                if sender.is_cancelled():
                    open(STOPPED, "w").close()
                    break
                output = pb_utils.Tensor("OUT", np.array([[number, 0]], np.int32))
                sender.send(pb_utils.InferenceResponse([output]))
                time.sleep(pause_ms / 1000)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            given = [pb_utils.get_input_tensor_by_name(request, "IN")]
            call = pb_utils.InferenceRequest(model_name="count", requested_output_names=["OUT"], inputs=given)
            for response in call.exec(decoupled=True):
                if not response.has_error() and response.output_tensors():
                    sender.send(pb_utils.InferenceResponse(response.output_tensors()))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
SLOW = """
import asyncio, os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.at_once = self.most = 0

    async def execute(self, requests):
        self.at_once += len(requests)
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= len(requests)
        numbers = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0][0] for request in requests]
        answers = [np.array([[number, self.most, os.getpid()]], np.int32) for number in numbers]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]) for answer in answers]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
AT_ONCE = 'parameters { key: "max_concurrency" value { string_value: "64" } }\n'
ENSEMBLES = {  # the steps, and how many requests may be at one
    "counting": (("count",), 0),
    "calling": (("caller",), 0),
    "limited": (("count", "slow_limited"), 4),
    "free": (("count", "slow_free"), 0),
    "killed": (("count", "slow_killed"), 4),
}
STREAMS = ("count", "caller", "counting", "calling")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("streams")
    write_model(folder, "count", COUNT, INT_CONFIG + DECOUPLED + "instance_group { count: 2 }\n")
    write_model(folder, "caller", CALLER, INT_CONFIG + DECOUPLED)
    for name in ("slow_limited", "slow_free", "slow_killed"):
        write_model(folder, name, SLOW, INT_CONFIG.replace("max_batch_size: 8", "max_batch_size: 1") + AT_ONCE)
    for name, (models, limit) in ENSEMBLES.items():
        tensors = ["IN", *[f"between_{index}" for index in range(1, len(models))], "OUT"]
        steps = [(model, *tensors[index : index + 2]) for index, model in enumerate(models)]
        write_ensemble(folder, name, steps, is_decoupled=True, max_inflight=limit)  # type: ignore[arg-type]
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


async def grpc_stream(server: RunningServer, model: str, count: int, pause_ms: int = 0) -> AsyncIterator[list[int]]:
    """The answers of one request; leaving the iteration leaves the server, too."""
    async with tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        given = tritonclient.grpc.InferInput("IN", [1, 2], "INT32")
        given.set_data_from_numpy(np.array([[count, pause_ms]], np.int32))

        async def requests() -> AsyncIterator[dict[str, Any]]:
            yield {"model_name": model, "inputs": [given]}

        answers = client.stream_infer(requests())
        try:
            async for result, error in answers:
                if error is not None:
                    raise error
                yield result.as_numpy("OUT")[0].tolist()
        finally:
            answers.cancel()


async def event_stream(server: RunningServer, model: str, count: int, pause_ms: int = 0) -> AsyncIterator[list[int]]:
    """The same by HTTP."""
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "data": [count, pause_ms]}
    url = f"http://127.0.0.1:{server.ports['http']}/v2/models/{model}/infer"
    headers = {"Accept": "text/event-stream"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={"inputs": [tensor]}, headers=headers) as response,
    ):
        async for line in response.content:
            outputs = json.loads(line.removeprefix(b"data: ")).get("outputs") if line.strip() else None
            if outputs:
                yield outputs[0]["data"]


DOORS = {"grpc": grpc_stream, "events": event_stream}


async def some(stream: AsyncIterator[list[int]], limit: int) -> list[int]:
    """The first number of each answer, up to so many."""
    found = []
    async for answer in stream:
        found.append(answer[0])
        if len(found) == limit:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model", STREAMS)
def test_a_client_that_leaves_ends_the_work_wherever_it_is_done(server: RunningServer, model: str, door: str) -> None:
    assert asyncio.run(some(DOORS[door](server, model, 6), 100)) == [0, 1, 2, 3, 4, 5]
    stopped = server.log_path.parent / "model_repository" / "count" / "1" / "stopped"
    stopped.unlink(missing_ok=True)
    assert asyncio.run(some(DOORS[door](server, model, 100_000, 5), 3)) == [0, 1, 2]
    server.until(stopped.exists, 5)


async def together(makes: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    async with asyncio.timeout(30):
        return await asyncio.gather(*[make() for make in makes], return_exceptions=True)


async def numbers_and_most(server: RunningServer, model: str, count: int) -> tuple[list[int], int]:
    answers = [answer async for answer in grpc_stream(server, model, count)]
    return [number for number, *_ in answers], max(most for _, most, _ in answers)


@pytest.mark.parametrize(("model", "most"), [("limited", range(1, 5)), ("free", range(5, 65))])
def test_a_fast_step_gives_a_slow_one_no_more_than_the_limit_at_once(
    server: RunningServer, model: str, most: range
) -> None:
    numbers, seen = asyncio.run(numbers_and_most(server, model, 60))
    assert sorted(numbers) == list(range(60))
    assert seen in most


@pytest.mark.parametrize("model", ["killed", "free"])
def test_sixteen_clients_of_a_limited_ensemble_get_everything(server: RunningServer, model: str) -> None:
    answers = asyncio.run(together([lambda: numbers_and_most(server, model, 40)] * 16))
    assert [sorted(numbers) for numbers, _ in answers] == [list(range(40))] * 16


def test_a_slow_step_that_dies_costs_only_the_streams_that_pass_through_it(server: RunningServer) -> None:
    async def kill_in_the_middle() -> list[int]:
        numbers = []
        async for number, _, worker in grpc_stream(server, "killed", 200):
            numbers.append(number)
            if len(numbers) == 5:
                os.kill(worker, signal.SIGKILL)
        return numbers

    async def others() -> list[int]:
        return (await numbers_and_most(server, "limited", 60))[0]

    hit, *unhurt = asyncio.run(together([kill_in_the_middle, others, others]))
    assert "in ensemble 'killed', Failed to process the request(s) for model instance 'slow_killed_0'" in str(hit)
    assert "was killed by signal 9" in str(hit)
    assert [sorted(numbers) for numbers in unhurt] == [list(range(60))] * 2
    server.until_ready("slow_killed")
    numbers, _ = asyncio.run(numbers_and_most(server, "killed", 10))
    assert sorted(numbers) == list(range(10))
