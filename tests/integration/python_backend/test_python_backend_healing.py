"""Workers that die: what their requests are told, and how the model comes back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.core.errors import ErrorKind

FRAGILE = """
import ctypes, os, signal, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils
from trireme.backends.python.pb_utils import runtime as pb_runtime

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            value = pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()
            order = int(value[0, 0])
            if order == 1:
                print("last words", flush=True)
                os._exit(3)
            if order == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if order == 3:
                ctypes.string_at(0)
            if order == 4:
                time.sleep(30)
            if order == 5:
                os.write(pb_runtime.current().channel.fileno(), b"this is no frame at all")
                time.sleep(30)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        return out
"""


def order(number: int, salt: float = 0.0) -> Any:
    return np.array([[number, salt]], np.float32)


def pid_of(model: Any) -> int:
    pid: int = model.backend._supervisors[0]._session.process.pid
    return pid


@pytest.mark.parametrize(
    ("number", "texts"),
    [
        (1, ["exited with code 3", "Its last output:", "last words"]),
        (2, ["was killed by signal 9 (SIGKILL)", "out of memory"]),
        (3, ["was killed by signal 11 (SIGSEGV)", "Fatal Python error: Segmentation fault", "in execute"]),
        (5, ["was killed because it sent a message that could not be handled"]),
    ],
    ids=["exit", "kill", "crash", "garbage"],
)
def test_a_death_is_explained_and_healed(
    repository: Any, caplog: pytest.LogCaptureFixture, number: int, texts: list[str]
) -> None:
    caplog.set_level(logging.INFO, logger="trireme")

    async def main() -> None:
        async with repository.serve(FRAGILE) as model:
            pid = pid_of(model)
            error = await model.error(order(number))
            assert error.kind == ErrorKind.INTERNAL
            start = (
                "Failed to process the request(s) for model instance 'm_0', message: Stub process 'm_0' is not healthy."
            )
            assert error.message.startswith(start)
            for text in texts:
                assert text in error.message
            await model.infer(order(0))
            await model.until_ready()
            assert pid_of(model) != pid
            assert model.runner.history == ["attach m_0", "detach m_0", "attach m_0"]
            assert "lost its worker" in caplog.text
            assert "serves again" in caplog.text
            assert model.backend.failure is None

    repository.run(main())


def test_readiness_turns_and_requests_are_answered_within_half_a_second(repository: Any) -> None:
    async def main() -> None:
        async with repository.serve(FRAGILE) as model:
            seconds: list[float] = []
            while not seconds or (seconds[-1] >= 0.5 and len(seconds) < 3):  # a busy machine may try again
                requests = model.send(order(4)) + model.send(order(0))
                await asyncio.sleep(0.2)
                assert await model.backend.is_ready()
                os.kill(pid_of(model), signal.SIGKILL)
                began = time.monotonic()
                (response,) = await model.wait(requests[0])
                seconds.append(time.monotonic() - began)
                assert not await model.backend.is_ready()
                assert "SIGKILL" in response.error.message
                (second,) = await model.wait(requests[1])
                assert second.error is None, "a request that was only waiting runs on the next worker"
            assert min(seconds) < 0.5

    repository.run(main())


def test_an_idle_worker_that_dies_is_replaced(repository: Any) -> None:
    async def main() -> None:
        async with repository.serve(FRAGILE) as model:
            old = pid_of(model)
            os.kill(old, signal.SIGKILL)
            while os.path.exists(f"/proc/{old}"):  # noqa: ASYNC110, its end is noticed when it is collected
                await asyncio.sleep(0.01)
            await model.until_ready()
            np.testing.assert_array_equal(await model.infer(order(0)), order(0))

    repository.run(main())


def test_inputs_that_kill_three_workers_are_refused_and_others_served(repository: Any) -> None:
    async def main() -> None:
        async with repository.serve(FRAGILE) as model:
            for _ in range(3):
                assert "exited with code 3" in (await model.error(order(1))).message
            refusal = await model.error(order(1))
            assert refusal.kind == ErrorKind.UNAVAILABLE
            assert "killed 3 worker processes" in refusal.message
            poisoned, fine = await model.batch(order(1), order(0))
            assert poisoned.error is not None
            assert fine.error is None
            assert "exited with code 3" in (await model.error(order(1, salt=1.0))).message

    repository.run(main())


def test_a_stream_whose_worker_dies_ends_with_the_reason(repository: Any) -> None:
    code = """
    import os, threading, time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            threading.Thread(target=self.stream, args=(requests[0].get_response_sender(),)).start()

        def stream(self, sender):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], np.int32))]))
            time.sleep(0.1)
            os._exit(9)
    """
    config = """
    backend: "python"
    input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
    output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
    model_transaction_policy { decoupled: true }
    """

    async def main() -> None:
        async with repository.serve(code, config) as model:
            first, last = await model.wait(model.send(np.array([1], np.int32))[0])
            assert first.error is None
            assert last.is_final
            assert "exited with code 9" in last.error.message

    repository.run(main())


def test_a_model_that_does_not_come_back_says_so_and_recovers_when_it_can(repository: Any, tmp_path: Path) -> None:
    code = f"""
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            if os.path.exists({str(tmp_path / "broken")!r}):
                raise RuntimeError("the disk is gone")

        def execute(self, requests):
            out = pb_utils.Tensor("OUT", np.zeros((1, 1), np.float32))
            return [pb_utils.InferenceResponse([out]) for r in requests]
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            (tmp_path / "broken").touch()
            os.kill(pid_of(model), signal.SIGKILL)
            async with asyncio.timeout(5):
                while await model.backend.is_ready():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            error = await model.error(order(0))
            assert error.kind == ErrorKind.UNAVAILABLE
            assert "the disk is gone" in error.message
            assert not await model.backend.is_ready()
            assert "the disk is gone" in model.backend.failure
            (tmp_path / "broken").unlink()
            await model.until_ready()
            await model.infer(order(0))
            assert model.backend.failure is None

    repository.run(main())


def test_one_instance_dying_leaves_the_others_serving(repository: Any) -> None:
    config = """
    backend: "python"
    max_batch_size: 8
    input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
    output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
    instance_group [{ name: "g" count: 2 kind: KIND_CPU }]
    """

    async def main() -> None:
        async with repository.serve(FRAGILE, config) as model:
            (killed,) = model.send(order(1))
            answers = await asyncio.gather(*(model.infer(order(0, salt)) for salt in range(50)))
            assert len(answers) == 50
            assert (await model.wait(killed))[0].error is not None
            await model.until_ready()

    repository.run(main())


def test_stopping_during_a_restart_leaves_no_process(repository: Any, tmp_path: Path) -> None:
    code = f"""
    import os, time

    class TritonPythonModel:
        def initialize(self, args):
            if os.path.exists({str(tmp_path / "slow")!r}):
                time.sleep(60)

        def execute(self, requests):
            pass
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            (tmp_path / "slow").touch()
            os.kill(pid_of(model), signal.SIGKILL)
            await asyncio.sleep(0.5)
            began = time.monotonic()
        assert time.monotonic() - began < 5

    repository.run(main())
