"""A server over a repository that a test writes, with real worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from forked_commands import worker_port
from numpy.typing import NDArray

from trireme.backends.catalog import BackendServices, create_backend
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.logs import LogSettings
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.registry.options import RegistryOptions
from trireme.registry.registry import ModelRegistry
from trireme.server.server import InferenceServer

Arrays = dict[str, NDArray[Any]]


class Ports:
    """Inference and model control for backends that are made before the server."""

    server: InferenceServer

    def infer(self, request: InferenceRequest) -> None:
        self.server.inference.infer(request)

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        await self.server.model_control.load(name, config, files)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        await self.server.model_control.unload(name, unload_dependents)

    async def is_model_ready(self, name: str, version: str) -> bool:
        return await self.server.model_control.is_model_ready(name, version)


class Served:
    """A server over a repository of the test's."""

    def __init__(self, server: InferenceServer) -> None:
        self.server = server

    async def answer(self, model: str, inputs: Mapping[str, Any], **fields: Any) -> InferenceResponse:
        done: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
        tensors = {
            name: value if isinstance(value, Tensor) else Tensor.from_numpy(name, value)
            for name, value in inputs.items()
        }
        request = InferenceRequest(model, "", "", tensors, done.set_result)
        for name, value in fields.items():
            setattr(request, name, value)
        self.server.inference.infer(request)
        return await asyncio.wait_for(done, 60)

    async def ask(self, model: str, **inputs: Any) -> Arrays:
        """The outputs by name; raises the error that the request was answered with."""
        response = await self.answer(model, inputs)
        if response.error is not None:
            raise response.error
        return {tensor.name: tensor.to_numpy() for tensor in response.outputs}

    def config(self, model: str) -> Any:
        return self.server.inference.find(model, "").config.message

    def execution_count(self, model: str) -> int:
        return int(self.server.inference.find(model, "").stats.snapshot().execution_count)


def serve(
    repository: Path,
    scenario: Callable[[Served], Coroutine[Any, Any, None]],
    models: tuple[str, ...] = ("*",),
    **services: Any,
) -> None:
    """Loads the models of the repository, runs the scenario, and ends every worker."""

    async def main() -> None:
        metrics = MetricsRegistry(MetricsOptions())
        ports = Ports()
        given = BackendServices(
            ports,
            ports,
            metrics.custom,
            **{"backend_config": {}, "is_auto_complete_enabled": True, "fork_server": worker_port(), **services},
        )
        registry = ModelRegistry(
            RegistryOptions((repository,), "explicit", models), lambda source: create_backend(source, given), metrics
        )
        ports.server = InferenceServer(registry, metrics, LogSettings())
        try:
            await registry.start()
            ports.server.mark_started()
            await scenario(Served(ports.server))
        finally:
            is_stopped = await registry.stop(20)
        assert is_stopped

    asyncio.run(main())


def place(repository: Path, name: str, config: str = "") -> Path:
    """A model folder with one version; the place for that version's file."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    if config:
        (folder / "config.pbtxt").write_text(config)
    return folder / "1"


async def load_error(served: Served, name: str) -> str:
    with pytest.raises(ServingError) as caught:
        await served.server.model_control.load(name, None, {})
    return caught.value.message


def add_onnx(path: Path, kind: str = "FLOAT", first_dim: int | str = "batch") -> None:
    """`SUM` and `DIFF` of `A` and `B`."""
    onnx = pytest.importorskip("onnx")
    helper, number = onnx.helper, getattr(onnx.TensorProto, kind)
    tensors = {name: helper.make_tensor_value_info(name, number, [first_dim, 3]) for name in ("A", "B", "SUM", "DIFF")}
    graph = helper.make_graph(
        [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFF"])],
        "add_sub",
        [tensors["A"], tensors["B"]],
        [tensors["SUM"], tensors["DIFF"]],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
