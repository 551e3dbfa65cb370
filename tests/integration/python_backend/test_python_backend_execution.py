"""Real workers executing batches: tensors of every size, errors, streams, calls between models, cancellation."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import numpy as np
import pytest

from trireme.core.errors import ErrorKind

IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())])
            for r in requests
        ]
"""
DECOUPLED = """
backend: "python"
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
model_transaction_policy { decoupled: true }
"""
TEXT = """
backend: "python"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_STRING dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [-1] }]
"""


def test_a_batch_of_requests_comes_back_in_order(repository: Any) -> None:
    async def main() -> None:
        async with repository.serve(IDENTITY) as model:
            arrays = [np.full((1, 4), number, np.float32) for number in range(8)]
            responses = await model.batch(*arrays)
            for array, response in zip(arrays, responses, strict=True):
                np.testing.assert_array_equal(response.outputs[0].to_numpy(), array)
            timing = model.runner.timings[-1]
            assert min(timing) > 0
            assert await model.backend.is_ready()

    repository.run(main())


@pytest.mark.parametrize("size_bytes", [0, 32 * 1024, 32 * 1024 + 4, 1 << 20, 16 << 20])
def test_tensors_of_any_size_come_back_unchanged(repository: Any, size_bytes: int) -> None:
    async def main() -> None:
        async with repository.serve(IDENTITY) as model:
            array = np.random.default_rng(1).random((1, size_bytes // 4), np.float32)
            for _ in range(3):
                np.testing.assert_array_equal(await model.infer(array), array)

    repository.run(main())


def test_strings_arrive_as_bytes_and_may_leave_as_text(repository: Any) -> None:
    code = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for r in requests:
                words = pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()
                assert all(isinstance(word, bytes) for word in words.ravel())
                upper = np.array([[w.decode().upper() for w in words.ravel()]], dtype=object)
                out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", upper)]))
            return out
    """

    async def main() -> None:
        async with repository.serve(code, TEXT) as model:
            answer = await model.infer(np.array([[b"caf\xc3\xa9", b"", b"x" * 50_000]], dtype=object))
            assert answer.tolist() == [["CAFÉ".encode(), b"", b"X" * 50_000]]

    repository.run(main())


def test_an_exception_fails_the_batch_and_the_model_goes_on(repository: Any) -> None:
    code = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            out = []
            for r in requests:
                value = pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()
                if value[0, 0] < 0:
                    raise ValueError("no negative numbers")
                if value[0, 0] == 99:
                    error = pb_utils.TritonError("gone", pb_utils.TritonError.NOT_FOUND)
                    out.append(pb_utils.InferenceResponse(error=error))
                else:
                    out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
            return out
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            one, minus, special = (np.array([[value]], np.float32) for value in (1, -1, 99))
            responses = await model.batch(one, minus)
            for response in responses:
                assert response.error.kind == ErrorKind.INTERNAL
                start = "Failed to process the request(s) for model 'm_0', message: ValueError: no negative numbers"
                assert response.error.message.startswith(f"{start}\n\nAt:\n")
                assert "/m/1/model.py(" in response.error.message
            fine, failed = await model.batch(one, special)
            assert fine.error is None
            assert (failed.error.kind, failed.error.message) == (ErrorKind.NOT_FOUND, "gone")

    repository.run(main())


def test_a_wrong_number_of_responses_fails_the_batch(repository: Any) -> None:
    code = """
    class TritonPythonModel:
        def execute(self, requests):
            return []
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            error = await model.error(np.zeros((1, 1), np.float32))
            assert "Number of InferenceResponse objects do not match the number of InferenceRequest" in error.message

    repository.run(main())


def test_a_decoupled_model_streams_and_frees_its_slot(repository: Any) -> None:
    code = """
    import threading, time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            for r in requests:
                count = int(pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()[0])
                threading.Thread(target=self.stream, args=(r.get_response_sender(), count)).start()

        def stream(self, sender, count):
            for number in range(count):
                time.sleep(0.01)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """

    async def main() -> None:
        async with repository.serve(code, DECOUPLED) as model:
            requests = [model.send(np.array([count], np.int32))[0] for count in (5, 3, 0)]
            for request, count in zip(requests, (5, 3, 0), strict=True):
                *items, last = await model.wait(request)
                assert [int(item.outputs[0].to_numpy()[0]) for item in items] == list(range(count))
                assert all(not item.is_final for item in items)
                assert (last.is_final, last.is_empty, last.error) == (True, True, None)

    repository.run(main())


def test_an_exception_in_a_decoupled_model_ends_its_requests(repository: Any) -> None:
    code = """
    class TritonPythonModel:
        def execute(self, requests):
            raise RuntimeError("no stream today")
    """

    async def main() -> None:
        async with repository.serve(code, DECOUPLED) as model:
            (response,) = await model.wait(model.send(np.array([1], np.int32))[0])
            assert "RuntimeError: no stream today" in response.error.message
            assert response.is_final

    repository.run(main())


CALLER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            name = pb_utils.get_input_tensor_by_name(r, "IN").as_numpy().ravel()[0].decode()
            model, _, how = name.partition("/")
            kind, _, size = how.partition("/")
            value = np.arange(int(size or 4), dtype=np.float32).reshape(1, -1)
            if kind == "stream":
                value = np.array([3], np.int32)
            inputs = [pb_utils.Tensor("IN", value)]
            call = pb_utils.InferenceRequest(model_name=model, inputs=inputs, requested_output_names=["OUT"])
            if kind == "stream":
                texts = [str([t.as_numpy().tolist() for t in x.output_tensors()]) for x in call.exec(decoupled=True)]
            else:
                answer = call.exec()
                if answer.has_error():
                    texts = [answer.error().message()]
                else:
                    same = (pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy() == value).all()
                    texts = [f"same: {same}"]
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([texts], dtype=object))]))
        return out
"""


def test_models_call_models(repository: Any) -> None:
    stream = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            for r in requests:
                sender = r.get_response_sender()
                for number in range(2):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
                sender.send(flags=1)
    """

    async def main() -> None:
        async with (
            repository.serve(IDENTITY, name="ident"),
            repository.serve(stream, DECOUPLED, name="stream"),
            repository.serve(CALLER, TEXT, name="caller") as caller,
        ):

            async def ask(text: str) -> Any:
                return (await caller.infer(np.array([[text.encode()]], dtype=object))).ravel().tolist()

            assert await ask("ident/one") == [b"same: True"]
            assert await ask("ident/one/1000000") == [b"same: True"]
            prefix = b"Model nobody - Error when running inference: "
            reason = b"Failed for execute the inference request. Model 'nobody' is not ready."
            assert await ask("nobody/one") == [prefix + reason]
            assert await ask("stream/stream") == [b"[[0]]", b"[[1]]", b"[]"]
            (refusal,) = await ask("stream/one")
            assert refusal.startswith(
                b"Model stream - Error when running inference: Model stream is using the decoupled."
            )

    repository.run(main())


def test_cancellation_is_seen_by_the_running_model(repository: Any) -> None:
    code = """
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            for number in range(1000):
                if sender.is_cancelled():
                    error = pb_utils.TritonError("stopped", pb_utils.TritonError.CANCELLED)
                    sender.send(pb_utils.InferenceResponse(error=error), flags=1)
                    return
                time.sleep(0.01)
            sender.send(flags=1)
    """

    async def main() -> None:
        async with repository.serve(code, DECOUPLED) as model:
            (request,) = model.send(np.array([1], np.int32))
            await asyncio.sleep(0.1)
            request.cancel()
            (response,) = await asyncio.wait_for(model.wait(request), 5)
            assert (response.error.kind, response.error.message) == (ErrorKind.CANCELLED, "stopped")

    repository.run(main())


def test_coroutines_overlap_up_to_max_concurrency(repository: Any) -> None:
    code = """
    import asyncio
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        running = most = 0

        async def execute(self, requests):
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.1)
            self.running -= 1
            out = pb_utils.Tensor("OUT", np.array([[self.most]], np.float32))
            return [pb_utils.InferenceResponse([out]) for r in requests]
    """
    limited = """
    backend: "python"
    max_batch_size: 8
    input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
    output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
    parameters { key: "max_concurrency" value: { string_value: "3" } }
    """

    async def main() -> None:
        async with repository.serve(code, limited) as model:
            answers = await asyncio.gather(*(model.infer(np.zeros((1, 1), np.float32)) for _ in range(9)))
            assert max(float(answer[0, 0]) for answer in answers) == 3

    repository.run(main())


def test_a_rescheduled_request_runs_again(repository: Any) -> None:
    code = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        seen = 0

        def execute(self, requests):
            out = []
            for r in requests:
                self.seen += 1
                if self.seen < 3:
                    r.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                    out.append(None)
                else:
                    tensor = pb_utils.Tensor("OUT", np.array([[self.seen]], np.float32))
                    out.append(pb_utils.InferenceResponse([tensor]))
            return out
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            assert (await model.infer(np.zeros((1, 1), np.float32)))[0, 0] == 3

    repository.run(main())


def test_control_and_metrics_reach_the_server(repository: Any) -> None:
    code = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            family = pb_utils.MetricFamily("things", "how many", pb_utils.MetricFamily.COUNTER)
            self.family, self.metric = family, family.Metric(labels={"a": "b"})

        def execute(self, requests):
            self.metric.increment(2)
            pb_utils.load_model("other")
            try:
                pb_utils.load_model("missing")
            except pb_utils.TritonModelException as error:
                assert "there is no 'missing'" in str(error), error
            assert pb_utils.is_model_ready("there")
            assert not pb_utils.is_model_ready("elsewhere")
            out = pb_utils.Tensor("OUT", np.array([[self.metric.value()]], np.float32))
            return [pb_utils.InferenceResponse([out]) for r in requests]
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            assert (await model.infer(np.zeros((1, 1), np.float32)))[0, 0] == 2
            assert (await model.infer(np.zeros((1, 1), np.float32)))[0, 0] == 4
        assert ("load", "other") in repository.models.calls
        assert len(repository.metrics.released) == 1

    repository.run(main())


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def worker_bytes(model: Any) -> int:
    pid = model.backend._supervisors[0]._session.process.pid
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_memory_stays_flat_over_two_thousand_large_requests(repository: Any) -> None:
    async def main() -> None:
        async with repository.serve(IDENTITY) as model:
            array = np.zeros((1, 1 << 18), np.float32)
            for _ in range(100):
                await model.infer(array)
            before, worker_before = resident_bytes(), worker_bytes(model)
            for _ in range(1900):
                await model.infer(array)
            assert resident_bytes() - before < 24 << 20
            assert worker_bytes(model) - worker_before < 24 << 20

    repository.run(main())
