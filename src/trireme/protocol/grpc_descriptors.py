"""The messages of gRPC's own services, health and reflection, described here because no installed package has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _INT32, _ENUM, _MESSAGE = (
    _Field.TYPE_STRING,
    _Field.TYPE_BYTES,
    _Field.TYPE_INT32,
    _Field.TYPE_ENUM,
    _Field.TYPE_MESSAGE,
)
REFLECTION_PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
HEALTH_SERVICE = "grpc.health.v1.Health"

_Row = tuple[str, int, Any, str]
"""Name, number, type, and for messages and enums the name of the type; a `*` before the name repeats it, a `?` puts
it into the message's oneof."""


class ServiceDescriptors:
    """A private pool, so that packages which describe the same files can be imported beside ours."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in (_health_file(), *map(_reflection_file, REFLECTION_PACKAGES)):
            self._pool.Add(file)

    def message(self, full_name: str) -> Any:
        """The class of a message."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full_name))

    def file_of_symbol(self, symbol: str) -> Any:
        """The descriptor of the file that defines a symbol; raises KeyError where none of these does."""
        return self._pool.FindFileContainingSymbol(symbol)

    def file(self, name: str) -> Any:
        """The descriptor of a file; raises KeyError where it is none of these."""
        return self._pool.FindFileByName(name)


def _health_file() -> Any:
    file = _file("grpc/health/v1/health.proto", "grpc.health.v1")
    _add_message(file, "HealthCheckRequest", (("service", 1, _STRING, ""),))
    status = ".grpc.health.v1.HealthCheckResponse.ServingStatus"
    response = _add_message(file, "HealthCheckResponse", (("status", 1, _ENUM, status),))
    serving_status = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        serving_status.value.add(name=name, number=number)
    service = file.service.add(name="Health")
    request_name, response_name = ".grpc.health.v1.HealthCheckRequest", ".grpc.health.v1.HealthCheckResponse"
    service.method.add(name="Check", input_type=request_name, output_type=response_name)
    service.method.add(name="Watch", input_type=request_name, output_type=response_name, server_streaming=True)
    return file


def _reflection_file(package: str) -> Any:
    file = _file(f"{package.replace('.', '/')}/reflection.proto", package)

    def own(name: str) -> str:
        return f".{package}.{name}"

    request: Sequence[_Row] = (
        ("host", 1, _STRING, ""),
        ("?file_by_filename", 3, _STRING, ""),
        ("?file_containing_symbol", 4, _STRING, ""),
        ("?file_containing_extension", 5, _MESSAGE, own("ExtensionRequest")),
        ("?all_extension_numbers_of_type", 6, _STRING, ""),
        ("?list_services", 7, _STRING, ""),
    )
    response: Sequence[_Row] = (
        ("valid_host", 1, _STRING, ""),
        ("original_request", 2, _MESSAGE, own("ServerReflectionRequest")),
        ("?file_descriptor_response", 4, _MESSAGE, own("FileDescriptorResponse")),
        ("?all_extension_numbers_response", 5, _MESSAGE, own("ExtensionNumberResponse")),
        ("?list_services_response", 6, _MESSAGE, own("ListServiceResponse")),
        ("?error_response", 7, _MESSAGE, own("ErrorResponse")),
    )
    _add_message(file, "ServerReflectionRequest", request, "message_request")
    _add_message(file, "ExtensionRequest", (("containing_type", 1, _STRING, ""), ("extension_number", 2, _INT32, "")))
    _add_message(file, "ServerReflectionResponse", response, "message_response")
    _add_message(file, "FileDescriptorResponse", (("*file_descriptor_proto", 1, _BYTES, ""),))
    numbers = (("base_type_name", 1, _STRING, ""), ("*extension_number", 2, _INT32, ""))
    _add_message(file, "ExtensionNumberResponse", numbers)
    _add_message(file, "ListServiceResponse", (("*service", 1, _MESSAGE, own("ServiceResponse")),))
    _add_message(file, "ServiceResponse", (("name", 1, _STRING, ""),))
    _add_message(file, "ErrorResponse", (("error_code", 1, _INT32, ""), ("error_message", 2, _STRING, "")))
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=own("ServerReflectionRequest"),
        output_type=own("ServerReflectionResponse"),
        client_streaming=True,
        server_streaming=True,
    )
    return file


def _file(name: str, package: str) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def _add_message(file: Any, name: str, rows: Sequence[_Row], oneof: str = "") -> Any:
    message = file.message_type.add(name=name)
    if oneof:
        message.oneof_decl.add(name=oneof)
    for marked, number, kind, type_name in rows:
        field = message.field.add(name=marked.lstrip("*?"), number=number, type=kind)
        field.label = _Field.LABEL_REPEATED if marked.startswith("*") else _Field.LABEL_OPTIONAL
        if type_name:
            field.type_name = type_name
        if marked.startswith("?"):
            field.oneof_index = 0
    return message
