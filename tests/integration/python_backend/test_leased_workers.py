"""Real workers that another process has leased, with this test in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.app.front_ends import _server_without_models
from trireme.app.leases.leased_model import LeasedModel
from trireme.app.leases.shared_counts import SharedCounts
from trireme.backends.python.host.supervisor import Supervisor
from trireme.config.options.server import ServerOptions
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

LEASE = 7
WAIT_S = 10.0
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

def answer_to(request):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy() + 1)])

class TritonPythonModel:
"""
ECHO = """
    def execute(self, requests):
        return [answer_to(request) for request in requests]
"""
NO_RETURN = """
    def execute(self, requests):
        [answer_to(request) for request in requests]
"""
DROPPED_SENDER = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            del sender
        return None
"""
ASYNC = """
    async def execute(self, requests):
        return [answer_to(request) for request in requests]
"""
MEASURES = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.measured({"step": (2, 30)})
            sender.send(answer_to(request), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
GATED = """
    def is_ready(self):
        return True

    def execute(self, requests):
        import os, time
        while not os.path.exists("{gate}"):
            time.sleep(0.01)
        return [answer_to(request) for request in requests]
"""
CALLS = """
    def execute(self, requests):
        inputs = requests[0].inputs()
        call = pb_utils.InferenceRequest(model_name="other", inputs=inputs, requested_output_names=["OUT"])
        return [pb_utils.InferenceResponse(call.exec().output_tensors()) for request in requests]
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
ONE_AT_A_TIME = 'parameters { key: "max_concurrency" value { string_value: "1" } }'


class LeaseHolder:
    """Who has leased the worker of a model."""

    def __init__(self, served: Any, lease: Any) -> None:
        self.lease = lease
        counts = SharedCounts.create()
        inference = _server_without_models(ServerOptions()).inference
        config = served.config.message.SerializeToString()
        self.model = LeasedModel(inference, config, 1, False, counts, lambda: None)
        self.model.add(LEASE, "m_0_0", lease.sockets)

    async def infer(self) -> InferenceResponse:
        answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
        tensor = Tensor.from_numpy("IN", np.zeros((1, 1), np.float32))
        assert self.model.start(InferenceRequest("m", "", "", {"IN": tensor}, answer.set_result))
        async with asyncio.timeout(WAIT_S):
            return await answer

    async def give_back(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.model.remove(LEASE)
            await self.lease.returned


@asynccontextmanager
async def leased(repository: Any, code: str) -> AsyncIterator[tuple[Any, LeaseHolder]]:
    """A model of one instance, and who has its worker; whatever becomes of the test, the worker can be ended."""
    async with repository.serve(MODEL + code) as served:
        supervisor: Supervisor = served.backend.supervisors[0]
        supervisor.detach()
        lease = await supervisor.lend(LEASE)
        assert lease is not None
        try:
            yield served, LeaseHolder(served, lease)
        finally:
            if not lease.returned.done():
                lease.returned.set_result(None)


@pytest.mark.parametrize("code", [NO_RETURN, DROPPED_SENDER], ids=["no return", "dropped sender"])
def test_a_leased_model_that_gives_no_response_has_its_requests_answered_and_comes_back(
    repository: Any, code: str
) -> None:
    async def go() -> None:
        async with leased(repository, code) as (served, holder):
            for _ in range(2):
                response = await holder.infer()
                assert response.error is not None
                assert "gave no response" in response.error.message
            await holder.give_back()
            assert "gave no response" in (await served.error(np.zeros((1, 1), np.float32))).message

    repository.run(go())


def test_a_worker_that_is_back_serves_the_server_again(repository: Any) -> None:
    async def go() -> None:
        async with leased(repository, ECHO) as (served, holder):
            assert (await holder.infer()).error is None
            await holder.give_back()
            assert (await served.infer(np.zeros((1, 1), np.float32))).tolist() == [[1.0]]

    repository.run(go())


@pytest.mark.parametrize(("code", "can_lend"), [(ECHO, True), (ASYNC, False)], ids=["plain", "async"])
def test_a_worker_whose_model_executes_on_an_event_loop_is_not_lent(repository: Any, code: str, can_lend: bool) -> None:
    async def go() -> None:
        async with repository.serve(MODEL + code, CONFIG + ONE_AT_A_TIME) as served:
            supervisor: Supervisor = served.backend.supervisors[0]
            assert supervisor.instance.max_concurrency == 1
            assert supervisor.can_lend is can_lend

    repository.run(go())


def test_a_model_that_has_called_another_is_not_lent(repository: Any) -> None:
    async def go() -> None:
        async with repository.serve(MODEL + ECHO, name="other"), repository.serve(MODEL + CALLS) as served:
            supervisor: Supervisor = served.backend.supervisors[0]
            assert supervisor.can_lend
            assert (await served.infer(np.zeros((1, 1), np.float32))).tolist() == [[1.0]]
            assert not supervisor.can_lend
            assert supervisor.unfit_reason == "it calls other models"

    repository.run(go())


def test_a_leased_worker_is_as_ready_as_it_last_said_while_it_may_execute(repository: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def go() -> None:
        async with leased(repository, GATED.replace("{gate}", str(gate))) as (served, holder):
            answer = asyncio.ensure_future(holder.infer())
            await asyncio.sleep(0.1)
            try:
                async with asyncio.timeout(4):
                    assert await served.backend.is_ready()
                assert not answer.done()
            finally:
                gate.touch()
            assert (await answer).error is None
            await holder.give_back()

    repository.run(go())


def test_what_a_leased_model_measures_is_counted_by_the_server(
    repository: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        measured: list[Any] = []
        async with leased(repository, MEASURES) as (served, holder):
            monkeypatch.setattr(served.runner, "measured", lambda *told: measured.append(told))
            assert (await holder.infer()).error is None
            await holder.give_back()
            assert measured == [(None, {"step": (2, 30)})]

    repository.run(go())
