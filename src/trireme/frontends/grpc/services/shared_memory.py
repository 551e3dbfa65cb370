"""The shared-memory RPCs of a server that has client shared memory turned off: no regions, none to be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trireme.core.errors import NotFoundError, UnsupportedError
from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2

SHARED_MEMORY_DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."


def _status(kind: str, response_class: Any) -> Callable[[Any, Any], Any]:
    def status(_: Any, request: Any) -> Any:
        if request.name:
            raise NotFoundError(f"Unable to find {kind} shared memory region: '{request.name}'")
        return response_class()

    return status


def _refuse(_: Any, __: Any) -> Any:
    raise UnsupportedError(SHARED_MEMORY_DISABLED)


def _method(name: str, rpc: Callable[[Any, Any], Any]) -> Any:
    return unary(f"/{INFERENCE_SERVICE}/{name}", "shared-memory", getattr(service_pb2, f"{name}Request"), rpc)


SHARED_MEMORY_METHODS = (
    _method("SystemSharedMemoryStatus", _status("system", service_pb2.SystemSharedMemoryStatusResponse)),
    _method("SystemSharedMemoryRegister", _refuse),
    _method("SystemSharedMemoryUnregister", _refuse),
    _method("CudaSharedMemoryStatus", _status("cuda", service_pb2.CudaSharedMemoryStatusResponse)),
    _method("CudaSharedMemoryRegister", _refuse),
    _method("CudaSharedMemoryUnregister", _refuse),
)
