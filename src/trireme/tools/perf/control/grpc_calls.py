"""Questions over gRPC."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from google.protobuf.json_format import MessageToDict

from trireme.proto import service_pb2
from trireme.tools.perf.address import Address
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.grpc_requests import frame, unframe
from trireme.tools.perf.wire.http2_client import ConnectionFault, Http2Client
from trireme.tools.perf.wire.response_headers import ResponseHeaders

_TIMEOUT_S = 60.0


class _OneAnswer:
    """Collects the answer of the one call that is under way."""

    def __init__(self) -> None:
        self.body = b""
        self.trailers: ResponseHeaders | None = None
        self.encoding = ""
        self.failure = ""

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        self.encoding = self.encoding or headers.encoding
        if is_end:
            self.trailers = headers

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        self.body += data

    def stream_reset(self, stream_id: int, code: int) -> None:
        self.failure = f"the server ended the call with error {code}"

    def going_away(self, last_stream_id: int, reason: str) -> None:
        self.failure = f"the server goes away: {reason}"


class GrpcServerCalls:
    """A connection for each question: they are few, and a server may close one that is idle."""

    def __init__(self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None) -> None:
        self._address = address
        self._headers = headers
        self._context = context

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
        answer = _OneAnswer()
        client = Http2Client(answer)
        headers = call_headers(method, self._address.authority, is_tls=self._address.is_tls, extra=self._headers)
        client.request(headers, frame(request.SerializeToString()))
        try:
            with contextlib.closing(self._connect()) as connection:
                self._exchange(connection, client, answer)
        except ConnectionRefusedError:
            raise PerfError(
                "failed to connect to all addresses; last error: UNKNOWN: "
                f"{self._address.authority}: Failed to connect to remote host: Connection refused"
            ) from None
        except (OSError, ConnectionFault) as error:
            raise PerfError(f"gRPC client failed at {self._address.authority}: {error}") from None
        trailers = answer.trailers
        if trailers is None or trailers.grpc_status is None:
            reason = answer.failure or "the answer has no status"
            raise PerfError(f"gRPC client failed: {reason} (is this the port for gRPC?)")
        if trailers.grpc_status != 0:
            raise PerfError(trailers.message or f"gRPC status {trailers.grpc_status}")
        reply = getattr(service_pb2, f"{method}Response")()
        reply.ParseFromString(unframe(answer.body, answer.encoding))
        return reply

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self._address.host, self._address.port), timeout=_TIMEOUT_S)
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname=self._address.host)

    def _exchange(self, connection: socket.socket, client: Http2Client, answer: _OneAnswer) -> None:
        while answer.trailers is None and not answer.failure:
            if client.out:
                connection.sendall(b"".join(client.out))
                client.out.clear()
            data = connection.recv(1 << 18)
            if not data:
                answer.failure = "the server closed the connection"
                return
            client.receive(data)


def _as_http(message: Any) -> dict[str, Any]:
    """With HTTP's names and numbers; what the two forms write differently (64-bit numbers) is read by int()."""
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found
