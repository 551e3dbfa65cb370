"""The headers of gRPC calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SERVICE = "inference.GRPCInferenceService"


@dataclass(frozen=True, eq=False)
class CallHeaders:
    """What opens a call; a connection encodes each of these objects once."""

    fields: tuple[tuple[str, str], ...]


def call_headers(
    method: str,
    authority: str,
    *,
    is_tls: bool,
    encoding: str | None = None,
    extra: Iterable[tuple[str, str]] = (),
    service: str = SERVICE,
) -> CallHeaders:
    """The headers of a method's calls."""
    fields = [
        (":method", "POST"),
        (":scheme", "https" if is_tls else "http"),
        (":path", f"/{service}/{method}"),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "trireme-perf"),
        ("grpc-accept-encoding", "identity, deflate, gzip"),
    ]
    if encoding is not None:
        fields.append(("grpc-encoding", encoding))
    return CallHeaders((*fields, *((name.lower(), value) for name, value in extra)))
