"""A server façade that answers at once, and a transport that keeps what is written to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.access.gate import Gate
from trireme.config.model_config import TensorConfig
from trireme.config.options.trace import TraceSettings
from trireme.core.errors import InvalidArgumentError, NotFoundError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.threads.pools import create_threads
from trireme.frontends.connection_slots import ConnectionPlace
from trireme.frontends.http.connection import Connection
from trireme.frontends.http.frontend import create_listener
from trireme.frontends.http.options import ConnectionLimits, HttpFrontendOptions
from trireme.server.call import Calls
from trireme.server.pictures.decoder import PictureDecoder
from trireme.server.recording.recorder import Recorder
from trireme.server.response_stages import ResponseStages
from trireme.server.shared_memory import SharedMemory
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing

Behaviour = Callable[[InferenceRequest], None]


def echo(request: InferenceRequest) -> None:
    """Every input comes back as the output of the same number."""
    outputs = [
        Tensor(tensor.name.replace("INPUT", "OUTPUT"), tensor.datatype, tensor.shape, tensor.data)
        for tensor in request.inputs.values()
    ]
    request.respond(InferenceResponse(outputs))


def keep_quiet(request: InferenceRequest) -> None:
    """Takes the request and answers nothing for now."""


class FakeModel:
    """As much of a model as front ends look at."""

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, tuple[str, tuple[int, ...]]],
        behaviour: Behaviour = echo,
        max_batch_size: int = 0,
        is_decoupled: bool = False,
        backend: str = "",
    ) -> None:
        self.name = name
        self.version_text = "1"
        self.is_placeholder = False
        self.is_decoupled = is_decoupled
        self.is_sequence = False
        self.max_batch_size = max_batch_size
        self.behaviour = behaviour
        self.output_reshapes: dict[str, Any] = {}
        self.called: object = None
        self.config = SimpleNamespace(
            name=name,
            parameters={},
            outputs={"OUTPUT0": None},
            backend=backend,
            max_batch_size=max_batch_size,
            inputs={key: TensorConfig(key, datatype, dims) for key, (datatype, dims) in inputs.items()},
        )

    def labels(self, output_name: str) -> list[str]:
        return ["zero", "one"]


class FakeServer:
    """The façade, with models that behave as a test wants."""

    def __init__(self) -> None:
        self.is_exiting = False
        self.is_ready = True
        self.recorded: list[Any] = []
        self.requests: list[InferenceRequest] = []
        self.models = {
            model.name: model
            for model in (
                FakeModel("ident", {"INPUT0": ("FP32", (-1,))}, max_batch_size=8),
                FakeModel("text", {"INPUT0": ("BYTES", (1,))}),
                FakeModel("stream", {"INPUT0": ("BYTES", (-1,))}, is_decoupled=True),
                FakeModel("writer", {"messages": ("BYTES", (-1,)), "stream": ("BOOL", (1,))}, backend="llm"),
                FakeModel("quiet", {"INPUT0": ("FP32", (-1,))}, keep_quiet),
            )
        }
        self.inference = self.health = self.metadata = self.statistics = self.model_control = self.settings = self
        self.text_models = self
        self.pictures = PictureDecoder()
        self.shared_memory = SharedMemory()
        self.tracing = Tracing(TraceSettingsStore(TraceSettings()))
        self.on_refused: Callable[[InferenceRequest, str], None] | None = None
        self.calls = Calls(self, self.tracing, self.shared_memory)  # type: ignore[arg-type]
        self.recorder = Recorder(self, self.shared_memory, is_allowed=True)  # type: ignore[arg-type]
        self.recorder.switch = self.calls
        self._threads = create_threads("fake")
        self._stages: Any = ResponseStages

    def find(self, name: str, version: str) -> FakeModel:
        model = self.models.get(name)
        if model is None:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        if version not in ("", "1"):
            raise NotFoundError(f"Request for unknown model: '{name}' version {version} is not found")
        return model

    def infer_on(self, model: FakeModel, request: InferenceRequest) -> None:
        self.requests.append(request)
        for name in request.inputs:
            if name not in model.config.inputs:
                raise InvalidArgumentError(f"unexpected inference input '{name}' for model '{model.name}'")
        request.served_version = model.version_text
        if request.output_parameters is not None:
            request.respond = self._stages(model, request, self.tracing, (), self._threads)
        model.behaviour(request)

    def is_live(self) -> bool:
        return True

    async def is_ready_async(self) -> bool:
        return self.is_ready

    async def index(self, ready_only: bool) -> list[Any]:
        self.recorded.append(("index", ready_only))
        return [
            SimpleNamespace(name="ident", version="1", state="READY", reason=""),
            SimpleNamespace(name="other", version="", state="", reason=""),
        ]

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        self.recorded.append(("load", name, config, dict(files)))
        if name == "broken":
            raise ServingError("load failed", InvalidArgumentError.kind)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self.recorded.append(("unload", name, unload_dependents))

    def server(self) -> Any:
        return SimpleNamespace(name="triton", version="2.73.0", extensions=("classification", "logging"))

    def model(self, name: str, version: str) -> Any:
        self.find(name, version)
        tensor = SimpleNamespace(name="INPUT0", datatype="FP32", shape=(-1, -1))
        return SimpleNamespace(name=name, versions=["1"], platform="python", inputs=[tensor], outputs=[])

    def config_json(self, name: str, version: str) -> bytes:
        self.find(name, version)
        return b'{"name":"ident"}'

    def log_settings(self) -> dict[str, Any]:
        return {"log_file": "", "log_info": True}

    def update_log_settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        self.recorded.append(("log", dict(changes)))
        return self.log_settings()

    def trace_settings(self, model: str) -> dict[str, Any]:
        return {"trace_level": ["OFF"], "model": model}

    def update_trace_settings(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        self.recorded.append(("trace", model, dict(changes)))
        return self.trace_settings(model)

    def metrics_page(self) -> bytes:
        return (
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m"} 5\n'
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m"} 10\n'
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m"} 64\n'
        )


class FakeHealth:
    """The health part, whose names differ from the state behind them."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def is_live(self) -> bool:
        return True

    async def is_ready(self) -> bool:
        return self._server.is_ready

    async def is_model_ready(self, name: str, version: str) -> bool:
        return name in self._server.models and version in ("", "1")


class FakeStatistics:
    """Statistics of one model, all zero but one."""

    def __init__(self, server: FakeServer) -> None:
        self.metrics_page = server.metrics_page

    def models(self, name: str, version: str) -> list[Any]:
        duration = SimpleNamespace(count=2, ns=30)
        phases = dict.fromkeys(
            ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"),
            duration,
        )
        batch = SimpleNamespace(batch_size=4, compute_input=duration, compute_infer=duration, compute_output=duration)
        return [
            SimpleNamespace(
                name=name or "every",
                version="1",
                last_inference_ms=7,
                inference_count=8,
                execution_count=2,
                batches=(batch,),
                responses={},
                measured={},
                **phases,
            )
        ]


class FakeTransport(asyncio.Transport):
    """Keeps what is written; knows whether reading is paused and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_paused = False
        self.is_closed = False
        self.has_written_eof = False
        self.is_aborted = False
        self.buffer_size = 0
        self.protocol: Any = None

    @property
    def output(self) -> bytes:
        return b"".join(self.written)

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written.extend(bytes(data) for data in list_of_data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_written_eof = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.protocol.connection_lost(None)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffer_size


class Client:
    """One connection without a socket: bytes go in, and what comes out is kept."""

    def __init__(self, listener: Any) -> None:
        self.transport = FakeTransport()
        self.connection = Connection(listener, ConnectionPlace(listener.slots))
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        """Delivers the data as the transport would, to whoever is its protocol."""
        while data:
            protocol = self.transport.protocol
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = protocol.get_buffer(-1)
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                buffer.release()
                protocol.buffer_updated(size)
                data = data[size:]
            else:
                protocol.data_received(data)
                return

    def take(self) -> bytes:
        """What was written since the last call."""
        output = self.transport.output
        self.transport.written.clear()
        return output

    async def answered(self) -> None:
        """Returns when every request is answered that may be answered from another thread."""
        while self.connection.is_busy:  # noqa: ASYNC110, nobody tells
            await asyncio.sleep(0.001)

    def ask(self, data: bytes) -> bytes:
        self.feed(data)
        return self.take()


@pytest.fixture(autouse=True)
def endless_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a client's requests are read, and cancelled, in one go: there is no loop to go on
    with."""
    monkeypatch.setattr("trireme.frontends.http.connection._TURN_S", 1e9)
    monkeypatch.setattr("trireme.server.long_work._TURN_S", 1e9)


@pytest.fixture
def server() -> FakeServer:
    fake = FakeServer()
    fake.health = FakeHealth(fake)  # type: ignore[assignment]
    fake.statistics = FakeStatistics(fake)  # type: ignore[assignment]
    return fake


@pytest.fixture
def connect(server: FakeServer) -> Callable[..., Client]:
    """Makes a client of a listener with these options."""

    def make(limits: ConnectionLimits | None = None, gate: Gate | None = None, **options: Any) -> Client:
        given = HttpFrontendOptions(limits=limits or ConnectionLimits(), **options)
        return Client(create_listener(server, given, gate))  # type: ignore[arg-type]

    return make


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def get(path: str, *headers: str) -> bytes:
    """The bytes of a GET."""
    return ("\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers]) + "\r\n\r\n").encode()


@pytest.fixture(name="post")
def post_fixture() -> Callable[..., bytes]:
    return post


@pytest.fixture(name="get")
def get_fixture() -> Callable[..., bytes]:
    return get
