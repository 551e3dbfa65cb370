"""The server's gRPC protocol as the commands use it: a connection for each call."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from trireme.core.datatype import NUMPY_DTYPE, Parameter
from trireme.core.elements import encode_bytes
from trireme.core.tensor import Tensor
from trireme.proto import service_pb2
from trireme.protocol.grpc_frames import MessageAssembler, MessageFault, decompress
from trireme.tools.client.errors import AnswerError, InputError, UnreachableError, answer_error
from trireme.tools.client.failures import connection_failure
from trireme.tools.client.messages import InferAnswer, InferCall
from trireme.tools.perf.address import Address
from trireme.tools.perf.wire.grpc_headers import CallHeaders, call_headers
from trireme.tools.perf.wire.grpc_requests import frame
from trireme.tools.perf.wire.http2_client import ConnectionFault, Http2Client
from trireme.tools.perf.wire.response_headers import ResponseHeaders

_LARGEST_MESSAGE = 2**31 - 1
_INT64_MAX = 2**63 - 1
_OK, _NOT_FOUND, _UNAVAILABLE = 0, 5, 14
_CONTENTS = ("bool", "int", "int64", "uint", "uint64", "fp32", "fp64", "bytes")
"""What a server may put into an answer in place of raw bytes."""


class GrpcCall:
    """One call: its messages as they come, and how it ended."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.messages: deque[bytes] = deque()
        self.end: ResponseHeaders | None = None
        self.failure = ""
        self._assembler = MessageAssembler()
        self._encoding = ""

    def take_headers(self, headers: ResponseHeaders, is_end: bool) -> None:
        self._encoding = self._encoding or headers.encoding
        if is_end:
            self.end = headers

    def take_data(self, data: bytes) -> None:
        for is_compressed, message in self._assembler.feed(data):
            whole = decompress(message, self._encoding, _LARGEST_MESSAGE) if is_compressed else bytes(message)
            self.messages.append(whole)


class GrpcConnection:
    """A connection with one call at a time; what comes late for an earlier one is nobody's any more."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._http2 = Http2Client(self)
        self._call: GrpcCall | None = None
        self.is_leaving = False
        """Whether the server takes no more calls here."""

    def begin(self, headers: CallHeaders, message: bytes) -> GrpcCall:
        """Queues a call; `exchange` sends it."""
        self._call = GrpcCall(self._http2.request(headers, message))
        return self._call

    def exchange(self, call: GrpcCall) -> None:
        """Sends what is queued, and waits for something to come."""
        if self._http2.out:
            self._socket.sendall(b"".join(self._http2.out))
            self._http2.out.clear()
        data = self._socket.recv(1 << 18)
        if data:
            self._http2.receive(data)
        else:
            call.failure = "the server closed the connection"

    def close(self) -> None:
        self._socket.close()

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        if self._call is not None and stream_id == self._call.stream_id:
            self._call.take_headers(headers, is_end)

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        if self._call is not None and stream_id == self._call.stream_id:
            self._call.take_data(data)

    def stream_reset(self, stream_id: int, code: int) -> None:
        if self._call is not None and stream_id == self._call.stream_id:
            self._call.failure = f"the server ended the call with the HTTP/2 error {code}"

    def going_away(self, last_stream_id: int, reason: str) -> None:
        self.is_leaving = True
        if self._call is not None and last_stream_id < self._call.stream_id:
            self._call.failure = f"the server goes away: {reason or 'it takes no more calls'}"


class GrpcClient:
    """A client over gRPC."""

    def __init__(
        self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        self._address = address
        self._headers = headers
        self._context = context
        self._timeout_s = timeout_s
        self._known_headers: dict[str, CallHeaders] = {}

    @property
    def place(self) -> str:
        return f"{'grpcs' if self._address.is_tls else 'grpc'}://{self._address.authority}"

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        return _as_json(self._one("ModelMetadata", service_pb2.ModelMetadataRequest(name=model, version=version)))

    def config(self, model: str, version: str) -> dict[str, Any]:
        return _as_json(self._one("ModelConfig", service_pb2.ModelConfigRequest(name=model, version=version)).config)

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        answer = self._one("ModelStatistics", service_pb2.ModelStatisticsRequest(name=model, version=version))
        return [_as_json(entry) for entry in answer.model_stats]

    def index(self) -> list[dict[str, str]]:
        return [_as_json(entry) for entry in self._one("RepositoryIndex", service_pb2.RepositoryIndexRequest()).models]

    def load(self, model: str, config: str | None) -> None:
        request = service_pb2.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            request.parameters["config"].string_param = config
        self._one("RepositoryModelLoad", request)

    def unload(self, model: str, with_dependents: bool) -> None:
        request = service_pb2.RepositoryModelUnloadRequest(model_name=model)
        request.parameters["unload_dependents"].bool_param = with_dependents
        self._one("RepositoryModelUnload", request)

    def infer(self, call: InferCall) -> InferAnswer:
        return _answer(self._one("ModelInfer", _request(call)))

    def stream(self, call: InferCall) -> Iterator[InferAnswer]:
        for answer in self._call("ModelStreamInfer", _request(call)):
            if answer.error_message:
                raise AnswerError(answer.error_message)
            yield _answer(answer.infer_response)

    def _one(self, method: str, request: Any) -> Any:
        answers = list(self._call(method, request))
        if not answers:
            raise UnreachableError(f"{self.place} answered without a message")
        return answers[0]

    def _call(self, method: str, request: Any) -> Iterator[Any]:
        """The messages of an answer as they come; a failure behind them is raised where they end."""
        kind = getattr(service_pb2, f"{method}Response")
        try:
            with self.borrowed() as connection:
                call = connection.begin(self._call_headers(method), frame(request.SerializeToString()))
                while call.end is None and not call.failure:
                    connection.exchange(call)
                    while call.messages:
                        yield kind.FromString(call.messages.popleft())
                if call.failure and call.end is None:  # before the connection is given back: nobody is to use it again
                    raise ConnectionError(call.failure)
        except (OSError, ConnectionFault) as error:
            raise self._failure(error) from None
        except (DecodeError, MessageFault) as error:
            raise AnswerError(f"the answer cannot be read: {error}") from None
        self._judge(call)

    def _call_headers(self, method: str) -> CallHeaders:
        headers = self._known_headers.get(method)
        if headers is None:
            is_tls, authority = self._address.is_tls, self._address.authority
            headers = call_headers(method, authority, is_tls=is_tls, extra=self._headers)
            self._known_headers[method] = headers
        return headers

    def _judge(self, call: GrpcCall) -> None:
        if call.end is None or call.end.grpc_status is None:
            raise self._failure(ConnectionError("the answer has no gRPC status"))
        status = call.end.grpc_status
        if status != _OK:
            is_not_found = status in (_NOT_FOUND, _UNAVAILABLE)
            raise answer_error(call.end.message or f"the server answered with the gRPC status {status}", is_not_found)

    def _failure(self, error: Exception) -> UnreachableError:
        return connection_failure(error, self.place, self._timeout_s, is_grpc=True)

    @contextmanager
    def borrowed(self) -> Iterator[GrpcConnection]:
        """The connection for one call."""
        with closing(self.open_connection()) as connection:
            yield connection

    def open_connection(self) -> GrpcConnection:
        return GrpcConnection(self._connect())

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self._address.host, self._address.port), timeout=self._timeout_s)
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname=self._address.host)


def _request(call: InferCall) -> Any:
    """Raises InputError for what the protocol's messages do not hold."""
    try:
        return _message(call)
    except (TypeError, ValueError) as error:
        raise InputError(f"the request cannot be sent over gRPC: {error}") from None


def _message(call: InferCall) -> Any:
    request = service_pb2.ModelInferRequest(model_name=call.model, model_version=call.version, id=call.request_id)
    for tensor in call.inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(bytes(tensor.data))
    for name in call.outputs:
        output = request.outputs.add(name=name)
        if name in call.class_counts:
            output.parameters["classification"].int64_param = call.class_counts[name]
    _set_parameters(request.parameters, call.parameters)
    return request


def _set_parameters(target: Any, parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int) and (name == "priority" or value > _INT64_MAX):
            target[name].uint64_param = value
        elif isinstance(value, int):
            target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        else:
            target[name].string_param = value


def _answer(response: Any) -> InferAnswer:
    raw = response.raw_output_contents
    outputs = [
        Tensor(
            output.name,
            output.datatype,
            tuple(output.shape),
            raw[number] if number < len(raw) else _contents(output),
        )
        for number, output in enumerate(response.outputs)
    ]
    parameters = {
        name: getattr(value, choice)
        for name, value in response.parameters.items()
        if (choice := value.WhichOneof("parameter_choice")) is not None
    }
    return InferAnswer(response.model_name, response.model_version, tuple(outputs), parameters)


def _contents(output: Any) -> bytes:
    values = next((found for kind in _CONTENTS if (found := getattr(output.contents, f"{kind}_contents"))), ())
    if output.datatype not in NUMPY_DTYPE:
        return encode_bytes(values)
    return np.array(list(values), NUMPY_DTYPE[output.datatype]).tobytes()


def _as_json(message: Any) -> dict[str, Any]:
    """With HTTP's names; 64-bit numbers are texts of digits, as JSON's form of protobuf has them."""
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found
