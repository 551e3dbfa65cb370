"""The HTTP front end on a real port, with the official client and with plain sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import uvloop
from tritonclient.utils import InferenceServerException

from trireme.config.model_config import TensorConfig
from trireme.config.options.trace import TraceSettings
from trireme.core.elements import decode_bytes, encode_bytes
from trireme.core.errors import NotFoundError, UnavailableError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.frontend import HttpFrontend
from trireme.frontends.http.options import HttpFrontendOptions, MetricsFrontendOptions
from trireme.frontends.metrics import MetricsFrontend
from trireme.server.call import Calls
from trireme.server.pictures.decoder import PictureDecoder
from trireme.server.recording.recorder import Recorder
from trireme.server.shared_memory import SharedMemory
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing


class EchoServer:
    """A façade with one model per behaviour, all in this process."""

    def __init__(self) -> None:
        self.is_exiting = False
        self.requests: list[InferenceRequest] = []
        self.cancelled = threading.Event()
        self.on_refused = None
        self.inference = self.health = self.metadata = self.statistics = self.model_control = self.settings = self
        self.text_models = self
        self.pictures = PictureDecoder()
        self.shared_memory = SharedMemory()
        self.tracing = Tracing(TraceSettingsStore(TraceSettings()))
        facade: Any = self
        self.calls = Calls(facade, self.tracing, self.shared_memory)
        self.recorder = Recorder(facade, self.shared_memory, is_allowed=True)
        self.recorder.switch = self.calls

    def find(self, name: str, version: str) -> Any:
        if name not in ("echo", "words", "hang"):
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        datatype = "BYTES" if name == "words" else "FP32"
        return SimpleNamespace(
            called=None,
            name=name,
            version_text="1",
            is_placeholder=False,
            is_decoupled=name == "words",
            max_batch_size=0,
            config=SimpleNamespace(backend="", max_batch_size=0, inputs={"IN": TensorConfig("IN", datatype, (-1,))}),
            labels=lambda output: (),
        )

    def infer_on(self, model: Any, request: InferenceRequest) -> None:
        self.requests.append(request)
        request.served_version = model.version_text
        if model.name == "echo":
            outputs = [Tensor("OUT", t.datatype, t.shape, t.data) for t in request.inputs.values()]
            request.respond(InferenceResponse(outputs))
        elif model.name == "hang":
            request.on_cancel = lambda cancelled: self.cancelled.set()
        else:
            loop = asyncio.get_running_loop()
            for index, word in enumerate(decode_bytes(request.inputs["IN"].data)):
                response = InferenceResponse([Tensor("OUT", "BYTES", (1,), encode_bytes([word]))], is_final=False)
                loop.call_later(0.001 * (index + 1), request.respond, response)  # 0 would be no timer
            loop.call_later(0.05, request.respond, InferenceResponse.final_mark())

    def is_live(self) -> bool:
        return True

    async def is_ready(self) -> bool:
        return True

    def server(self) -> Any:
        return SimpleNamespace(name="triton", version="2.73.0", extensions=("classification",))

    def metrics_page(self) -> bytes:
        return b"nv_x 1\n"


class Running:
    """Front ends on a loop in a thread of their own."""

    def __init__(self) -> None:
        self.server = EchoServer()
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        facade: Any = self.server
        self.http = self.do(self._started(HttpFrontend(facade, HttpFrontendOptions("127.0.0.1", 0))))
        self.metrics = self.do(self._started(MetricsFrontend(facade, MetricsFrontendOptions("127.0.0.1", 0))))
        self.url = f"127.0.0.1:{self.http.port}"

    async def _started(self, frontend: Any) -> Any:
        await frontend.start()
        return frontend

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def stop(self) -> None:
        self.do(self.http.close(1.0))
        self.do(self.metrics.close(1.0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.stop()


@pytest.mark.parametrize("size", [1, 16, 1 << 16, 2_408_448])
@pytest.mark.parametrize("is_binary", [True, False])
def test_tensors_come_back_through_the_official_client(running: Running, size: int, is_binary: bool) -> None:
    if not is_binary:
        size = min(size, 1000)
    values = np.arange(size, dtype=np.float32)
    client = triton.InferenceServerClient(running.url, network_timeout=30)
    for _ in range(2):
        given = triton.InferInput("IN", [size], "FP32")
        given.set_data_from_numpy(values, binary_data=is_binary)
        wanted = triton.InferRequestedOutput("OUT", binary_data=is_binary)
        result = client.infer("echo", [given], outputs=[wanted], request_id="7")
        np.testing.assert_array_equal(result.as_numpy("OUT"), values)
        assert result.get_response()["id"] == "7"
    client.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_the_official_client_may_compress(running: Running, coding: str) -> None:
    values = np.arange(50_000, dtype=np.float32)
    given = triton.InferInput("IN", [50_000], "FP32")
    given.set_data_from_numpy(values)
    client = triton.InferenceServerClient(running.url)
    result = client.infer("echo", [given], request_compression_algorithm=coding, response_compression_algorithm=coding)
    np.testing.assert_array_equal(result.as_numpy("OUT"), values)
    client.close()


def test_the_official_client_reads_health_metadata_and_errors(running: Running) -> None:
    client = triton.InferenceServerClient(running.url)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["name"] == "triton"
    with pytest.raises(InferenceServerException, match="unknown model: 'nope'"):
        client.infer("nope", [])
    client.close()


def test_large_bodies_follow_each_other_on_one_connection(running: Running) -> None:
    data = np.random.default_rng(0).bytes(4 << 20)
    document = json.dumps(
        {
            "inputs": [
                {"name": "IN", "shape": [1 << 20], "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    connection = http.client.HTTPConnection(running.url)
    for _ in range(3):
        connection.request(
            "POST",
            "/v2/models/echo/infer",
            document + data,
            {"Inference-Header-Content-Length": str(len(document))},
        )
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200
        assert body.endswith(data)
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read() == b""
    connection.close()


def test_events_arrive_one_by_one(running: Running) -> None:
    connection = http.client.HTTPConnection(running.url)
    connection.request("POST", "/v2/models/words/generate_stream", b'{"IN":["a","b","c"]}')
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    events = [json.loads(line[6:]) for line in response.read().split(b"\n\n") if line]
    assert [entry["OUT"] for entry in events] == ["a", "b", "c"]
    connection.close()


def test_a_client_that_leaves_cancels_its_request(running: Running) -> None:
    connection = http.client.HTTPConnection(running.url)
    connection.request("POST", "/v2/models/hang/infer", b'{"inputs":[]}')
    while not running.server.requests:
        connection.sock.settimeout(0.01)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
    assert running.http.connection_count == 1
    connection.close()
    assert running.server.cancelled.wait(10)


def test_a_port_that_is_taken_is_said_to_be(running: Running) -> None:
    port = running.http.port
    other = HttpFrontend(running.server, HttpFrontendOptions("127.0.0.1", port))  # type: ignore[arg-type]
    with pytest.raises(UnavailableError) as caught:
        running.do(other.start())
    assert caught.value.message == f"Socket '127.0.0.1:{port}' already in use "


def test_no_connection_is_accepted_any_more_but_open_ones_go_on(running: Running) -> None:
    connection = http.client.HTTPConnection(running.url)
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().read() == b""
    running.loop.call_soon_threadsafe(running.http.stop_accepting)
    running.server.is_exiting = True
    running.do(asyncio.sleep(0))
    connection.request("GET", "/v2/health/live")
    response = connection.getresponse()
    assert (response.status, response.read()) == (503, b'{"error":"Server exiting"}')
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", running.http.port), timeout=1)
    connection.close()


def test_metrics_are_on_their_own_port(running: Running) -> None:
    connection = http.client.HTTPConnection(f"127.0.0.1:{running.metrics.port}")
    connection.request("GET", "/metrics")
    assert connection.getresponse().read() == b"nv_x 1\n"
    connection.close()


def test_a_refused_client_that_is_still_sending_reads_its_refusal(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.http.port)) as raw:
        raw.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000)
        raw.settimeout(10)
        assert raw.recv(100).startswith(b"HTTP/1.1 431 ")
