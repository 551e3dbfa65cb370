"""What follows from a call's headers alone, worked out once per distinct header block of a connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.header_forwarding import is_reserved, refusal_of
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.headers import RequestHeaders, encode_block

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection, OpenCall
    from trireme.protocol.http2.stream import Stream

_STATUS_ERRORS_KEY: Final = b"triton_grpc_error"
_EXPLAIN_KEY: Final = b"x-explain"
EXPLAIN_PARAMETER: Final = "x-explain"
_RESTRICTION_PREFIX: Final = "triton-grpc-protocol-"
_NOT_METADATA: Final = (b"te", b"content-type", _STATUS_ERRORS_KEY)


class Method(NamedTuple):
    """One RPC: its path, the protocol it belongs to for restrictions, and how a call of it begins."""

    path: bytes
    protocol: str
    open: Callable[[Connection, Stream, CallPlan], OpenCall | None]
    """None where the call was refused and answered."""
    is_inference: bool = False
    counts_messages: bool = False
    """Each message is a request of its own, which quotas count."""


class CallPlan:
    """How a call with certain headers is to be treated."""

    __slots__ = (
        "answers_with_status",
        "forwarded",
        "method",
        "on_refused",
        "refusal",
        "request_encoding",
        "response_encoding",
        "timeout_s",
        "wants_explanation",
    )

    def __init__(self, method: Method | None = None, refusal: bytes | None = None) -> None:
        self.method = method
        self.refusal = refusal
        """The header block that answers such a call, where it is not taken at all."""
        self.on_refused: Callable[[str], None] | None = None
        """Told the client's address when it is answered so."""
        self.timeout_s: float | None = None
        self.request_encoding = "identity"
        self.response_encoding: str | None = None
        self.forwarded: dict[str, str] | None = None
        self.answers_with_status = False
        """`triton_grpc_error: true`: the first error of a stream ends it with a status."""
        self.wants_explanation = False
        """`x-explain: 1`: the last response to each request tells where the time went."""


class CallGuard(Protocol):
    """The gate in front of methods, as the planner sees it."""

    def guarded(self, method: Method, headers: RequestHeaders) -> Method:
        """The method for calls with these headers, behind the gate."""

    def key_header_of(self, headers: RequestHeaders) -> bytes:
        """The header that carries the client's key, which no model is to see; b"" for none."""

    def refused(self, headers: RequestHeaders, protocol: str, status: int) -> Callable[[str], None] | None:
        """What to call with the client's address when a call is refused for its headers alone."""


class CallPlanner:
    """Makes plans by the options and the methods of a listener."""

    def __init__(
        self,
        options: GrpcFrontendOptions,
        methods: Mapping[bytes, Method],
        guard: CallGuard | None = None,
    ) -> None:
        self._methods = methods
        self._guard = guard
        self._restrictions = {
            protocol: (f"{_RESTRICTION_PREFIX}{key.lower()}".encode(), value.encode())
            for protocol, (key, value) in options.restricted_protocols.items()
        }
        pattern = options.header_forward_pattern
        self._forward = re.compile(pattern, re.IGNORECASE) if pattern else None
        self._compression_level = options.infer_response_compression_level

    def plan(self, headers: RequestHeaders) -> CallPlan:
        """The plan for such headers."""
        refusal = _http_refusal(headers)
        if refusal is not None:
            return CallPlan(refusal=refusal)
        method = self._methods.get(headers.path)
        if method is None:
            return self._refused(headers, "", grpc.UNIMPLEMENTED, "")
        restriction = self._restrictions.get(method.protocol)
        if restriction is not None and not _has(headers, *restriction):
            text = f"This protocol is restricted, expecting header '{restriction[0].decode()}'"
            return self._refused(headers, method.protocol, grpc.UNAVAILABLE, text)
        return self._plan_call(method if self._guard is None else self._guard.guarded(method, headers), headers)

    def _refused(self, headers: RequestHeaders, protocol: str, status: int, text: str) -> CallPlan:
        plan = CallPlan(refusal=grpc.trailers_only(status, text))
        if self._guard is not None:
            plan.on_refused = self._guard.refused(headers, protocol, status)
        return plan

    def _plan_call(self, method: Method, headers: RequestHeaders) -> CallPlan:
        plan = CallPlan(method)
        encoding = headers.first(b"grpc-encoding") or b"identity"
        if encoding not in (b"identity", b"gzip", b"deflate"):
            return _unknown_encoding(encoding)
        plan.request_encoding = encoding.decode()
        timeout = headers.first(b"grpc-timeout")
        if timeout is not None:
            plan.timeout_s = grpc.parse_timeout(timeout)
        if method.is_inference:
            plan.answers_with_status = headers.first(_STATUS_ERRORS_KEY) == b"true"
            plan.wants_explanation = headers.first(_EXPLAIN_KEY) == b"1"
            accepted = headers.first(b"grpc-accept-encoding") or b""
            plan.response_encoding = _response_encoding(self._compression_level, accepted)
            plan.forwarded, reserved = self._forwarded(headers)
            if reserved is not None:
                return self._refused(headers, method.protocol, grpc.INVALID_ARGUMENT, refusal_of(reserved))
        return plan

    def _forwarded(self, headers: RequestHeaders) -> tuple[dict[str, str] | None, str | None]:
        """The parameters that metadata becomes, and the first key that must not become one."""
        if self._forward is None:
            return None, None
        forwarded = {}
        hidden = b"" if self._guard is None else self._guard.key_header_of(headers)
        for key, value in headers.fields:
            name = key.decode("utf-8", "replace")
            if key in _NOT_METADATA or key == hidden or name.startswith("grpc-") or not self._forward.search(name):
                continue
            if is_reserved(name):
                return None, name
            forwarded[name] = value.decode("utf-8", "replace")
        return forwarded or None, None


def _has(headers: RequestHeaders, name: bytes, value: bytes) -> bool:
    given = headers.first(name)
    return given is not None and compare_digest(given, value)


def _http_refusal(headers: RequestHeaders) -> bytes | None:
    """The answer to what is no gRPC call at all."""
    if headers.method != b"POST":
        return encode_block(((b":status", b"405"), (b"allow", b"POST")))
    content_type = headers.first(b"content-type") or b""
    kind = content_type.split(b";", 1)[0].strip()
    if kind != b"application/grpc" and not kind.startswith(b"application/grpc+"):
        return encode_block(((b":status", b"415"),))
    return None


def _unknown_encoding(encoding: bytes) -> CallPlan:
    text = f"Compression algorithm '{encoding.decode('utf-8', 'replace')}' is not supported."
    block = grpc.trailers_only(grpc.UNIMPLEMENTED, text)
    return CallPlan(refusal=block + encode_block(((b"grpc-accept-encoding", grpc.ACCEPTED_ENCODINGS),)))


def _response_encoding(level: str, accepted: bytes) -> str | None:
    """The way to compress at this level, among those the client takes: gzip for low, deflate for more."""
    if level == "none":
        return None
    names = [name.strip().decode("ascii", "replace") for name in accepted.split(b",")]
    wanted = ("gzip", "deflate") if level == "low" else ("deflate", "gzip")
    return next((name for name in wanted if name in names), None)
