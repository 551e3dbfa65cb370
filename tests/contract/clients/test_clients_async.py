"""The asyncio clients and async_infer of the blocking ones: many at once, cancellation, deadlines, streams."""

from __future__ import annotations

import asyncio
import queue
import time

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException
from waiting import until

MODULES = {"http": tritonclient.http.aio, "grpc": tritonclient.grpc.aio}


def tensor(module, name: str, array: np.ndarray, datatype: str):
    entry = module.InferInput(name, list(array.shape), datatype)
    entry.set_data_from_numpy(array)
    return entry


def keep(found: queue.Queue):
    return lambda result, error: found.put((result, error))


def sleeping(module, seconds: float) -> list:
    return [tensor(module, "SLEEP_S", np.array([seconds], dtype=np.float32), "FP32")]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_asyncio_client_asks_everything(server, kind) -> None:
    module = MODULES[kind]

    async def ask() -> None:
        async with module.InferenceServerClient(getattr(server, kind)) as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("types")
            assert not await client.is_model_ready("nosuch")
            metadata = await client.get_server_metadata()
            assert (metadata["name"] if kind == "http" else metadata.name) == "triton"
            assert await client.get_model_metadata("types")
            assert await client.get_model_config("types")
            assert await client.get_inference_statistics("types")
            assert await client.get_model_repository_index()
            assert await client.get_log_settings()
            assert await client.get_trace_settings()
            await client.load_model("spare")
            await client.unload_model("spare")
            with pytest.raises(InferenceServerException, match="failed to poll from model repository"):
                await client.load_model("nosuch")

    asyncio.run(ask())


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_asyncio_client_infers_many_at_once(server, kind) -> None:
    module = MODULES[kind]

    async def ask() -> None:
        async with module.InferenceServerClient(getattr(server, kind)) as client:
            arrays = [np.full([8], number, dtype=np.float32) for number in range(32)]
            calls = [client.infer("types", [tensor(module, "IN_FP32", array, "FP32")]) for array in arrays]
            for array, result in zip(arrays, await asyncio.gather(*calls), strict=True):
                np.testing.assert_array_equal(result.as_numpy("OUT_FP32"), array)
            with pytest.raises(InferenceServerException, match="'nosuch' is not found"):
                await client.infer("nosuch", [tensor(module, "IN_FP32", arrays[0], "FP32")])

    asyncio.run(ask())


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_executions_of_an_async_model_overlap(server, kind) -> None:
    module = MODULES[kind]

    async def ask() -> float:
        async with module.InferenceServerClient(getattr(server, kind)) as client:
            await client.infer("overlap", sleeping(module, 0))
            start = time.monotonic()
            await asyncio.gather(*(client.infer("overlap", sleeping(module, 0.4)) for _ in range(10)))
            return time.monotonic() - start

    assert asyncio.run(ask()) < 1.5


def test_the_asyncio_client_streams(server) -> None:
    module = tritonclient.grpc.aio

    async def requests():
        for count in (2, 3):
            counted = tensor(module, "COUNT", np.array([count], dtype=np.int32), "INT32")
            yield {"model_name": "count", "inputs": [counted]}
        yield {"model_name": "nosuch", "inputs": []}

    async def ask() -> tuple[list[int], list[str]]:
        numbers, errors = [], []
        async with module.InferenceServerClient(server.grpc) as client:
            async for result, error in client.stream_infer(requests()):
                if error is not None:
                    errors.append(error.message())
                else:
                    numbers.append(int(result.as_numpy("OUT")[0]))
        return numbers, errors

    numbers, errors = asyncio.run(ask())
    assert sorted(numbers) == [0, 0, 1, 1, 2]
    assert errors == ["Request for unknown model: 'nosuch' is not found"]


def test_an_asyncio_call_is_cancelled(server, grpc_door) -> None:
    module = tritonclient.grpc.aio
    before = grpc_door.text("describe", {})["cancelled"]
    wait = [tensor(module, "WAIT_S", np.array([20], dtype=np.float32), "FP32")]

    async def ask() -> None:
        async with module.InferenceServerClient(server.grpc) as client:
            call = asyncio.ensure_future(client.infer("describe", wait))
            await asyncio.sleep(0.2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(ask())
    until(lambda: grpc_door.text("describe", {})["cancelled"] == before + 1)


def test_http_async_infer_gives_results_later(http_door) -> None:
    arrays = [np.full([4], number, dtype=np.float32) for number in range(16)]
    handles = [
        http_door.client.async_infer("types", [http_door.tensor("IN_FP32", array)], request_id=str(array[0]))
        for array in arrays
    ]
    for array, handle in zip(arrays, handles, strict=True):
        np.testing.assert_array_equal(handle.get_result(timeout=20).as_numpy("OUT_FP32"), array)


def test_grpc_async_infer_calls_back(grpc_door) -> None:
    found: queue.Queue = queue.Queue()
    for number in range(16):
        entry = grpc_door.tensor("IN_FP32", np.full([4], number, dtype=np.float32))
        grpc_door.client.async_infer("types", [entry], callback=keep(found), request_id=str(number))
    results = [found.get(timeout=10) for _ in range(16)]
    assert [error for _, error in results] == [None] * 16
    assert {result.get_response().id for result, _ in results} == {str(number) for number in range(16)}


def test_grpc_async_infer_calls_back_with_errors(grpc_door) -> None:
    found: queue.Queue = queue.Queue()
    grpc_door.client.async_infer("nosuch", [], callback=keep(found))
    wait = [grpc_door.tensor("WAIT_S", np.array([5], dtype=np.float32))]
    grpc_door.client.async_infer("describe", wait, callback=keep(found), client_timeout=0.2)
    errors = [found.get(timeout=10)[1].status() for _ in range(2)]
    assert errors == ["StatusCode.NOT_FOUND", "StatusCode.DEADLINE_EXCEEDED"]


def test_a_cancelled_async_infer_reaches_the_model(grpc_door) -> None:
    before = grpc_door.text("describe", {})["cancelled"]
    found: queue.Queue = queue.Queue()
    wait = [grpc_door.tensor("WAIT_S", np.array([20], dtype=np.float32))]
    call = grpc_door.client.async_infer("describe", wait, callback=keep(found))
    time.sleep(0.2)
    call.cancel()
    assert found.get(timeout=10)[1].status() == "StatusCode.CANCELLED"
    until(lambda: grpc_door.text("describe", {})["cancelled"] == before + 1)
