"""What the server and its models say about themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.config.text.json_form import to_json
from trireme.registry.model import Model
from trireme.registry.registry import ModelRegistry
from trireme.server.health import Health

TRITON_LEVEL = "2.73.0"
"""The Triton release whose protocols this server speaks: clients and tools read it as the server's version."""

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Name, version and extensions of the protocol."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input or output as clients see it: with the batch dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """One model: its versions, or the one asked for, and its tensors."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Metadata:
    """Every method that takes a name raises the unknown-model errors."""

    def __init__(self, registry: ModelRegistry, health: Health, server_name: str, server_version: str) -> None:
        self._registry = registry
        self._health = health
        self._server = ServerMetadata(server_name, server_version, EXTENSIONS)

    def server(self) -> ServerMetadata:
        return self._server

    def model(self, name: str, version: str) -> ModelMetadata:
        """For "" the versions are all that serve, and the tensors those of the newest."""
        model = self._find(name, version)
        if version:
            versions = [model.version_text]
        else:
            versions = [other.version_text for other in self._registry.models.records[model.id].ready_models]
        config = model.config
        return ModelMetadata(
            name=model.name,
            versions=versions,
            platform=config.platform or config.backend,
            inputs=_tensors(config, config.inputs.values()),
            outputs=_tensors(config, config.outputs.values()),
        )

    def config(self, name: str, version: str) -> ModelConfig:
        """The configuration in force; its `message` is the wire form."""
        return self._find(name, version).config

    def config_json(self, name: str, version: str) -> bytes:
        """The configuration as the HTTP protocol writes it."""
        return to_json(self._find(name, version).config.message).encode()

    def _find(self, name: str, version: str) -> Model:
        self._health.check_running()
        return self._registry.find(name, version)


def _tensors(config: ModelConfig, tensors: Iterable[TensorConfig]) -> list[TensorMetadata]:
    batch = (-1,) if config.max_batch_size > 0 else ()
    return [TensorMetadata(tensor.name, tensor.datatype, batch + tensor.dims) for tensor in tensors]
