"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload."""

from __future__ import annotations

from typing import Any

from trireme.core.errors import InvalidArgumentError, UnsupportedError
from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2


async def _index(server: Any, request: Any) -> Any:
    _refuse_repository(request)
    response = service_pb2.RepositoryIndexResponse()
    for entry in await server.model_control.index(request.ready):
        response.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
    return response


async def _load(server: Any, request: Any) -> Any:
    _refuse_repository(request)
    config: str | None = None
    files: dict[str, bytes] = {}
    for key, value in request.parameters.items():
        kind = value.WhichOneof("parameter_choice")
        if key == "config":
            _expect("load parameter 'config'", kind, "string_param")
            config = value.string_param
        elif key.startswith("file:"):
            _expect(f"load parameter '{key}'", kind, "bytes_param")
            files[key] = value.bytes_param
        else:
            raise InvalidArgumentError(f"unrecognized load parameter '{key}'.")
    await server.model_control.load(request.model_name, config, files)
    return service_pb2.RepositoryModelLoadResponse()


async def _unload(server: Any, request: Any) -> Any:
    _refuse_repository(request)
    unload_dependents = False
    for key, value in request.parameters.items():
        if key == "unload_dependents":
            _expect("'unload_dependents' parameter", value.WhichOneof("parameter_choice"), "bool_param")
            unload_dependents = value.bool_param
    await server.model_control.unload(request.model_name, unload_dependents)
    return service_pb2.RepositoryModelUnloadResponse()


def _refuse_repository(request: Any) -> None:
    if request.repository_name:
        raise UnsupportedError("'repository_name' specification is not supported")


def _expect(what: str, kind: str | None, expected: str) -> None:
    if kind != expected:
        raise InvalidArgumentError(f"invalid value type for {what}, expected {expected}.")


REPOSITORY_METHODS = tuple(
    unary(
        f"/{INFERENCE_SERVICE}/{name}",
        "model-repository",
        getattr(service_pb2, f"{name}Request"),
        rpc,
        is_large=rpc is _load,  # it may bring the model's files along
    )
    for name, rpc in (("RepositoryIndex", _index), ("RepositoryModelLoad", _load), ("RepositoryModelUnload", _unload))
)
