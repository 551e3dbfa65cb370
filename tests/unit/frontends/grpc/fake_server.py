"""In place of the server façade: a few models that answer in this process, and recorded calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from trireme.config.model_config import ModelConfig
from trireme.config.options.trace import TraceSettings
from trireme.core.errors import InternalError, InvalidArgumentError, NotFoundError, UnavailableError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.threads.pools import create_threads
from trireme.proto import model_config_pb2
from trireme.server.call import Calls
from trireme.server.response_stages import ResponseStages
from trireme.server.shared_memory import SharedMemory
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing


class FakeModel:
    """Answers with its inputs; `behaviour` says how and when."""

    def __init__(self, name: str, behaviour: str, is_decoupled: bool = False) -> None:
        message = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=8)
        message.input.add(name="INPUT0", data_type=model_config_pb2.TYPE_FP32, dims=[-1])
        message.output.add(name="OUTPUT0", data_type=model_config_pb2.TYPE_FP32, dims=[-1])
        message.model_transaction_policy.decoupled = is_decoupled
        self.name = name
        self.behaviour = behaviour
        self.config = ModelConfig.from_message(message)
        self.is_decoupled = is_decoupled
        self.max_batch_size = self.config.max_batch_size
        self.is_placeholder = False
        self.called: object = None
        self.output_reshapes: dict[str, Any] = {}

    def labels(self, output_name: str) -> tuple[str, ...]:
        return ("cat", "dog", "fish")


def echo(request: InferenceRequest, is_final: bool = True, **kwargs: Any) -> InferenceResponse:
    outputs = [
        Tensor(name.replace("INPUT", "OUTPUT"), tensor.datatype, tensor.shape, tensor.data)
        for name, tensor in request.inputs.items()
    ]
    return InferenceResponse(outputs, is_final=is_final, **kwargs)


class FakeInference:
    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._threads = create_threads("fake")
        self.requests: list[InferenceRequest] = []
        self.cancelled: list[InferenceRequest] = []
        self.held: list[InferenceRequest] = []
        self.models = {
            name: FakeModel(name, name, name in ("repeat", "endless", "silent"))
            for name in (
                "ident",
                "later",
                "held",
                "broken",
                "params",
                "repeat",
                "endless",
                "silent",
                "empty",
                "twice",
                "large",
            )
        }
        self.large_bytes = 1_000_000

        self.on_refused: Callable[[InferenceRequest, str], None] | None = None

    def find(self, name: str, version: str) -> FakeModel:
        if name not in self.models:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return self.models[name]

    def infer_on(self, model: FakeModel, request: InferenceRequest) -> None:
        request.served_version = "1"
        if model.behaviour != "ident":  # the speed of this path is measured
            self.requests.append(request)
        if request.output_parameters is not None:
            stages: Any = ResponseStages(model, request, self._tracing, (), self._threads)  # type: ignore[arg-type]
            request.respond = stages
        getattr(self, f"_{model.behaviour}")(request)

    def release(self, request: InferenceRequest) -> None:
        self.held.remove(request)
        request.on_cancel = None
        request.respond(echo(request))

    def _ident(self, request: InferenceRequest) -> None:
        if any(tensor.datatype == "<invalid>" for tensor in request.inputs.values()):
            raise InvalidArgumentError("inference input data-type is '<invalid>'").for_request(request.id)
        request.respond(echo(request))

    def _large(self, request: InferenceRequest) -> None:
        """However little was asked."""
        shape, data = (1, self.large_bytes // 4), bytes(self.large_bytes)
        request.respond(InferenceResponse([Tensor("OUTPUT0", "FP32", shape, data)]))

    def _later(self, request: InferenceRequest) -> None:
        asyncio.get_running_loop().call_soon(request.respond, echo(request))

    def _held(self, request: InferenceRequest) -> None:
        self.held.append(request)
        request.on_cancel = self._on_cancel

    def _broken(self, request: InferenceRequest) -> None:
        request.respond(InferenceResponse.of_error(InternalError("the model said: 100% wrong\nline two é")))

    def _params(self, request: InferenceRequest) -> None:
        parameters = dict(request.parameters)
        parameters["priority"] = request.priority
        parameters["correlation"] = request.correlation_id
        parameters["ratio"] = 0.5
        request.respond(echo(request, parameters=parameters))

    def _repeat(self, request: InferenceRequest) -> None:
        """As many responses as the input has elements, then the mark that ends the request."""
        tensor = request.inputs["INPUT0"]
        for index in range(len(tensor.data) // 4):
            output = Tensor("OUTPUT0", "FP32", (1,), bytes(tensor.data[index * 4 : index * 4 + 4]))
            request.respond(InferenceResponse([output], is_final=False))
        request.respond(InferenceResponse.final_mark())

    def _endless(self, request: InferenceRequest) -> None:
        request.respond(echo(request, is_final=False))
        self._held(request)

    def _silent(self, request: InferenceRequest) -> None:
        request.respond(InferenceResponse.final_mark())

    _empty = _silent

    def _twice(self, request: InferenceRequest) -> None:
        request.respond(echo(request, is_final=False))
        request.respond(echo(request))

    def _on_cancel(self, request: InferenceRequest) -> None:
        self.cancelled.append(request)


class FakeHealth:
    is_exiting = False

    def is_live(self) -> bool:
        return True

    async def is_ready(self) -> bool:
        if self.is_exiting:
            raise UnavailableError("Server exiting")
        await asyncio.sleep(0)
        return True

    async def is_model_ready(self, name: str, version: str) -> bool:
        return name == "ident"


class FakeMetadata:
    def __init__(self, inference: FakeInference) -> None:
        self._inference = inference

    def server(self) -> Any:
        return SimpleNamespace(name="triton", version="2.73.0", extensions=("classification", "sequence"))

    def model(self, name: str, version: str) -> Any:
        self._inference.find(name, version)
        tensor = SimpleNamespace(name="INPUT0", datatype="FP32", shape=(-1, -1))
        return SimpleNamespace(name=name, versions=["1"], platform="python", inputs=[tensor], outputs=[tensor])

    def config(self, name: str, version: str) -> Any:
        return self._inference.find(name, version).config


class FakeStatistics:
    def models(self, name: str, version: str) -> list[Any]:
        if name not in ("", "ident"):
            raise InvalidArgumentError(f"requested model '{name}' is not available")
        none, some = SimpleNamespace(count=0, ns=0), SimpleNamespace(count=3, ns=30)
        phases = dict.fromkeys(
            ("fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"), none
        )
        batch = SimpleNamespace(batch_size=2, compute_input=some, compute_infer=some, compute_output=some)
        response = SimpleNamespace(
            compute_infer=some, compute_output=some, success=some, fail=none, empty_response=none, cancel=none
        )
        counts = {"last_inference_ms": 5, "inference_count": 6, "execution_count": 3}
        return [
            SimpleNamespace(
                name="ident", version="1", success=some, batches=(batch,), responses={"0": response}, **counts, **phases
            )
        ]


class FakeModelControl:
    def __init__(self) -> None:
        self.loaded: list[Any] = []
        self.unloaded: list[Any] = []

    async def index(self, ready_only: bool) -> list[Any]:
        entries = [SimpleNamespace(name="ident", version="1", state="READY", reason="")]
        return entries if ready_only else [*entries, SimpleNamespace(name="other", version="", state="", reason="")]

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        if name == "bad":
            raise InvalidArgumentError("load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: x;\n")
        self.loaded.append((name, config, files))

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self.unloaded.append((name, unload_dependents))


class FakeSettings:
    def __init__(self) -> None:
        self.log: dict[str, Any] = {"log_file": "", "log_info": True, "log_verbose_level": 0, "log_format": "default"}
        self.trace_changes: list[Any] = []

    def log_settings(self) -> dict[str, Any]:
        return self.log

    def update_log_settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        self.log.update(changes)
        return self.log

    def trace_settings(self, model: str) -> dict[str, Any]:
        return {"trace_level": ["OFF"], "trace_rate": "1000"}

    def update_trace_settings(self, model: str, changes: dict[str, Any]) -> dict[str, Any]:
        self.trace_changes.append((model, changes))
        return self.trace_settings(model)


class FakeServer:
    """Looks like `trireme.server.server.InferenceServer` to the front end."""

    def __init__(self) -> None:
        self.shared_memory = SharedMemory()
        self.tracing = Tracing(TraceSettingsStore(TraceSettings()))
        self.inference = FakeInference(self.tracing)
        self.calls = Calls(self.inference, self.tracing, self.shared_memory)  # type: ignore[arg-type]
        self.health = FakeHealth()
        self.metadata = FakeMetadata(self.inference)
        self.statistics = FakeStatistics()
        self.model_control = FakeModelControl()
        self.settings = FakeSettings()
        self.is_exiting = False
