"""Calls other models in the way that its input names, and says what came of it."""

import asyncio
import json
import multiprocessing

import numpy as np

import triton_python_backend_utils as pb_utils


def request(model, inputs, outputs, **options):
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    return pb_utils.InferenceRequest(
        model_name=model, inputs=tensors, requested_output_names=outputs, request_id="inner", **options
    )


def counting(count, **inputs):
    given = {"COUNT": np.array([count], dtype=np.int32), **inputs}
    return request("count", given, ["OUT"])


def copying(value):
    return request("types", {"IN_FP32": np.array([value], dtype=np.float32)}, ["OUT_FP32"])


def copy_of(value):
    """In a process of its own."""
    return summary(copying(value).exec())


def summary(response):
    if response.has_error():
        return {"error": response.error().message()}
    return [tensor.as_numpy().reshape(-1).tolist() for tensor in response.output_tensors()]


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for given in requests:
            way = given.inputs()[0].as_numpy()[0].decode()
            found = getattr(self, way)()
            if asyncio.iscoroutine(found):
                found = asyncio.run(found)
            text = np.array([json.dumps(found).encode()], dtype=object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)]))
        return responses

    def sync(self):
        return summary(copying(1.5).exec())

    def parameters(self):
        wanted = {"n": 1, "s": "x", "b": True}
        inner = request("describe", {}, ["TEXT"], parameters=wanted, correlation_id=9, timeout=10**9, flags=1)
        response = inner.exec()
        known = json.loads(response.output_tensors()[0].as_numpy()[0])
        return [known, json.loads(response.parameters()), len(response.output_tensors())]

    def decoupled(self):
        return [summary(response) for response in counting(3).exec(decoupled=True)]

    def decoupled_error(self):
        fail_at = np.array([1], dtype=np.int32)
        return [summary(response) for response in counting(3, FAIL_AT=fail_at).exec(decoupled=True)]

    def decoupled_by_mistake(self):
        return summary(counting(3).exec())

    def unknown(self):
        return summary(request("nosuch", {}, []).exec())

    def unknown_decoupled(self):
        return [summary(response) for response in request("nosuch", {}, []).exec(decoupled=True)]

    def unknown_version(self):
        return summary(request("types", {}, [], model_version=7).exec())

    def not_loaded(self):
        return summary(request("spare", {}, []).exec())

    def names_in_bytes(self):
        tensor = pb_utils.Tensor(b"IN_FP32", np.array([1.5], dtype=np.float32))
        inner = pb_utils.InferenceRequest(
            request_id=b"inner", model_name=b"types", inputs=[tensor], requested_output_names=[b"OUT_FP32"]
        )
        assert (tensor.name(), inner.request_id(), set(inner.requested_output_names())) == (
            "IN_FP32",
            "inner",
            {"OUT_FP32"},
        )
        assert pb_utils.is_model_ready(b"types", b"1")
        assert pb_utils.TritonError(b"no").message() == "no"
        pb_utils.Logger.log_info(b"in bytes")
        return summary(inner.exec())

    def forked(self):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(copy_of, [0.0, 1.0, 2.0])

    def looked_into(self):
        """`next` and iterating go on from each other's place until all is seen, and then begin again."""
        responses = counting(3).exec(decoupled=True)
        first = summary(next(responses))
        rest = [summary(response) for response in responses]
        again = [summary(response) for response in responses]
        for response in responses:
            third = summary(response)
            break
        return [first, rest, again, third, summary(next(responses))]

    def too_late(self):
        return summary(request("queued", {"HOLD": np.array([[0]], dtype=np.float32)}, ["SERVED"], timeout=1).exec())

    def in_time(self):
        inner = request("queued", {"HOLD": np.array([[0]], dtype=np.float32)}, ["SERVED"], timeout=4_000_000)
        return [len(row) for row in summary(inner.exec())]

    def invalid(self):
        return summary(request("types", {"IN_FP32": np.array([[1.0]], dtype=np.float32)}, ["OUT_FP32"]).exec())

    def failing(self):
        return summary(request("failing", {"MODE": np.array([1], dtype=np.int32)}, ["OUT"]).exec())

    def ensemble(self):
        return summary(request("pipeline", {"IN": np.array([2.5], dtype=np.float32)}, ["OUT"]).exec())

    async def parallel(self):
        waits = [request("overlap", {"SLEEP_S": np.array([0.2], dtype=np.float32)}, ["OUT"]) for _ in range(4)]
        return [summary(response) for response in await asyncio.gather(*(wait.async_exec() for wait in waits))]

    async def parallel_decoupled(self):
        streams = await asyncio.gather(counting(2).async_exec(decoupled=True), counting(3).async_exec(decoupled=True))
        return [[summary(response) for response in stream] for stream in streams]

    async def nested(self):
        text = np.array([b"sync"], dtype=object)
        response = await request("caller_two", {"WAY": text}, ["TEXT"]).async_exec()
        return json.loads(response.output_tensors()[0].as_numpy()[0])
