"""Questions over gRPC."""

from __future__ import annotations

import ssl
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from trireme.proto import service_pb2
from trireme.tools.perf.address import Address
from trireme.tools.perf.control.unary_call import UnaryCaller
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.wire.grpc_headers import SERVICE


class GrpcServerCalls:
    """Each question is a call of its own."""

    def __init__(self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None) -> None:
        self._caller = UnaryCaller(address, headers, context)

    def extensions(self) -> set[str]:
        return set(self._call("ServerMetadata", service_pb2.ServerMetadataRequest()).extensions)

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        answer = self._call("ModelMetadata", service_pb2.ModelMetadataRequest(name=model, version=version))
        return _as_http(answer)

    def config(self, model: str, version: str) -> dict[str, Any]:
        answer = self._call("ModelConfig", service_pb2.ModelConfigRequest(name=model, version=version))
        return _as_http(answer.config)

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        answer = self._call("ModelStatistics", service_pb2.ModelStatisticsRequest(name=model, version=version))
        return [_as_http(entry) for entry in answer.model_stats]

    def set_trace(self, model: str, settings: dict[str, list[str]]) -> None:
        request = service_pb2.TraceSettingRequest(model_name=model)
        for name, values in settings.items():
            request.settings[name].value.extend(values)
        self._call("TraceSetting", request)

    def register_region(self, name: str, key: str, size_bytes: int) -> None:
        request = service_pb2.SystemSharedMemoryRegisterRequest(name=name, key=key, byte_size=size_bytes)
        self._call("SystemSharedMemoryRegister", request)

    def unregister_region(self, name: str) -> None:
        self._call("SystemSharedMemoryUnregister", service_pb2.SystemSharedMemoryUnregisterRequest(name=name))

    def close(self) -> None:
        pass

    def _call(self, method: str, request: Any) -> Any:
        reply = getattr(service_pb2, f"{method}Response")()
        try:
            reply.ParseFromString(self._caller.call(SERVICE, method, request.SerializeToString()))
        except DecodeError:
            raise PerfError(f"the answer to {method} is no message of the v2 protocol") from None
        return reply


def _as_http(message: Any) -> dict[str, Any]:
    """With HTTP's names and numbers; what the two forms write differently (64-bit numbers) is read by int()."""
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found
