"""A gRPC listener with a fake server behind it, on a loop of its own, for clients that block."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from trireme.frontends.grpc.frontend import GrpcFrontend
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.proto import service_pb2


def _load_fake_server() -> Any:
    path = Path(__file__).parents[2] / "unit" / "frontends" / "grpc" / "fake_server.py"
    spec = importlib.util.spec_from_file_location("grpc_contract_fake_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Listener:
    """The frontend, its fake server, and a way to call into its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> None:
        self.loop = loop
        self.server = _load_fake_server().FakeServer()
        self.frontend = GrpcFrontend(self.server, GrpcFrontendOptions(**{"address": "127.0.0.1", "port": 0, **options}))
        self.run(self.frontend.start())
        self.address = f"127.0.0.1:{self.frontend.port}"

    def run(self, work) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def call(self, function, *args) -> Any:
        async def work() -> Any:
            return function(*args)

        return self.run(work())

    def channel(self, **options: Any) -> grpc.Channel:
        arguments = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *options.items()]
        return grpc.insecure_channel(self.address, options=arguments)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


@pytest.fixture
def listen(loop) -> Iterator[Callable[..., Listener]]:
    opened: list[Listener] = []

    def start(**options: Any) -> Listener:
        opened.append(Listener(loop, options))
        return opened[-1]

    yield start
    for listener in opened:
        listener.run(listener.frontend.close())


@pytest.fixture
def listener(listen) -> Listener:
    return listen()


@pytest.fixture
def channel(listener) -> Iterator[grpc.Channel]:
    with listener.channel() as channel:
        yield channel


@pytest.fixture
def infer_request() -> Callable[..., Any]:
    def build(model: str = "ident", request_id: str = "", data: bytes = bytes(16)) -> Any:
        message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, len(data) // 4])
        message.raw_input_contents.append(data)
        return message

    return build
