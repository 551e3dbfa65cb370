"""The shared-memory RPCs: regions of the system's memory, and of GPUs'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2
from trireme.server.shared_memory import CUDA_HANDLE_BYTES


def _system_status(server: Any, request: Any) -> Any:
    response = service_pb2.SystemSharedMemoryStatusResponse()
    for region in server.shared_memory.system_regions(request.name):
        entry = response.regions[region.name]
        entry.name, entry.key = region.name, region.key
        entry.offset, entry.byte_size = region.offset, region.byte_size
    return response


def _cuda_status(server: Any, request: Any) -> Any:
    response = service_pb2.CudaSharedMemoryStatusResponse()
    for region in server.shared_memory.cuda_regions(request.name):
        entry = response.regions[region.name]
        entry.name, entry.device_id, entry.byte_size = region.name, region.device_id, region.byte_size
    return response


def _system_register(server: Any, request: Any) -> Any:
    server.shared_memory.register_system(request.name, request.key, request.offset, request.byte_size)
    return service_pb2.SystemSharedMemoryRegisterResponse()


def _cuda_register(server: Any, request: Any) -> Any:
    server.shared_memory.check_allowed()
    if len(request.raw_handle) != CUDA_HANDLE_BYTES:
        raise InvalidArgumentError("failed to register shared memory region: invalid args")
    server.shared_memory.register_cuda(request.name, request.raw_handle, request.device_id, request.byte_size)
    return service_pb2.CudaSharedMemoryRegisterResponse()


def _unregister(kind: str, response_class: Any) -> Callable[[Any, Any], Any]:
    def unregister(server: Any, request: Any) -> Any:
        server.shared_memory.unregister(kind, request.name)
        return response_class()

    return unregister


def _method(name: str, rpc: Callable[[Any, Any], Any]) -> Any:
    return unary(f"/{INFERENCE_SERVICE}/{name}", "shared-memory", getattr(service_pb2, f"{name}Request"), rpc)


SHARED_MEMORY_METHODS = (
    _method("SystemSharedMemoryStatus", _system_status),
    _method("SystemSharedMemoryRegister", _system_register),
    _method("SystemSharedMemoryUnregister", _unregister("system", service_pb2.SystemSharedMemoryUnregisterResponse)),
    _method("CudaSharedMemoryStatus", _cuda_status),
    _method("CudaSharedMemoryRegister", _cuda_register),
    _method("CudaSharedMemoryUnregister", _unregister("cuda", service_pb2.CudaSharedMemoryUnregisterResponse)),
)
