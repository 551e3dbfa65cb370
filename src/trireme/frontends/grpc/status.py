"""The one table from the kinds of our errors to gRPC status codes."""

from __future__ import annotations

from trireme.core.errors import (
    ErrorKind,
    ForbiddenError,
    NoRoomError,
    QuotaExceededError,
    ServingError,
    UnauthenticatedError,
)
from trireme.protocol import grpc_frames as grpc

STOPPING = "GRPC server is shutting down and has stopped accepting new requests."
"""What calls are told that come when the connection is about to be closed."""
STATUS_BY_KIND = {
    ErrorKind.UNKNOWN: grpc.UNKNOWN,
    ErrorKind.INTERNAL: grpc.INTERNAL,
    ErrorKind.NOT_FOUND: grpc.NOT_FOUND,
    ErrorKind.INVALID_ARGUMENT: grpc.INVALID_ARGUMENT,
    ErrorKind.UNAVAILABLE: grpc.UNAVAILABLE,
    ErrorKind.UNSUPPORTED: grpc.UNIMPLEMENTED,
    ErrorKind.ALREADY_EXISTS: grpc.ALREADY_EXISTS,
    ErrorKind.CANCELLED: grpc.CANCELLED,
}
STATUS_BY_TYPE: dict[type[ServingError], int] = {
    UnauthenticatedError: grpc.UNAUTHENTICATED,
    ForbiddenError: grpc.PERMISSION_DENIED,
    QuotaExceededError: grpc.RESOURCE_EXHAUSTED,
    NoRoomError: grpc.RESOURCE_EXHAUSTED,
}
"""Of errors that no model and no request can cause, only who sends it, or what all send together."""


def status_of(error: ServingError) -> int:
    """The status a client reads for this error."""
    return STATUS_BY_TYPE.get(type(error)) or STATUS_BY_KIND[error.kind]
