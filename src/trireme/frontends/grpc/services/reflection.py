"""Server reflection, with which tools such as grpcurl learn the services without their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trireme.core.elements import Buffer
from trireme.frontends.grpc.plan import CallPlan, Method
from trireme.frontends.grpc.services.grpc_health import DESCRIPTORS
from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, parse
from trireme.frontends.grpc.streaming import StreamCall
from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.grpc_descriptors import HEALTH_SERVICE, REFLECTION_PACKAGES
from trireme.protocol.http2.stream import Stream

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

_SERVICES: Final = (
    INFERENCE_SERVICE,
    HEALTH_SERVICE,
    *(f"{package}.ServerReflection" for package in REFLECTION_PACKAGES),
)


class ReflectionCall(StreamCall):
    """Answers each question of the stream at once."""

    __slots__ = ("_package",)

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self._package = stream.headers.path.decode()[1:].partition(".ServerReflection/")[0]

    def message_arrived(self, message: Buffer) -> None:
        request = parse(DESCRIPTORS.message(f"{self._package}.ServerReflectionRequest"), message)
        response = DESCRIPTORS.message(f"{self._package}.ServerReflectionResponse")(
            valid_host=request.host, original_request=request
        )
        _answer(request, response)
        encoded = response.SerializeToString()
        self.send([encoded], len(encoded))

    def half_closed(self) -> None:
        self.finish()


def _answer(request: Any, response: Any) -> None:
    question = request.WhichOneof("message_request")
    try:
        if question == "list_services":
            for name in _SERVICES:
                response.list_services_response.service.add(name=name)
        elif question == "file_by_filename":
            _add_files(response, _find("FindFileByName", DESCRIPTORS.file, request.file_by_filename))
        elif question == "file_containing_symbol":
            symbol = request.file_containing_symbol
            _add_files(response, _find("FindFileContainingSymbol", DESCRIPTORS.file_of_symbol, symbol))
        elif question == "all_extension_numbers_of_type":
            name = request.all_extension_numbers_of_type
            _find("FindFileContainingSymbol", DESCRIPTORS.file_of_symbol, name)
            response.all_extension_numbers_response.base_type_name = name
        else:
            raise KeyError("extensions are not used")
    except KeyError as error:
        response.error_response.error_code = grpc.NOT_FOUND
        response.error_response.error_message = str(error.args[0]) if error.args else "not found"


def _find(method: str, own: Any, name: str) -> Any:
    """A file among those of the inference service, or among gRPC's own."""
    try:
        return getattr(service_pb2.DESCRIPTOR.pool, method)(name)
    except KeyError:
        return own(name)


def _add_files(response: Any, file: Any) -> None:
    """The file and all that it depends on, so that one question is enough."""
    waiting, seen = [file], set()
    while waiting:
        descriptor = waiting.pop()
        if descriptor.name not in seen:
            seen.add(descriptor.name)
            response.file_descriptor_response.file_descriptor_proto.append(descriptor.serialized_pb)
            waiting.extend(descriptor.dependencies)


REFLECTION_METHODS: Final = tuple(
    Method(f"/{package}.ServerReflection/ServerReflectionInfo".encode(), "metadata", ReflectionCall)
    for package in REFLECTION_PACKAGES
)
