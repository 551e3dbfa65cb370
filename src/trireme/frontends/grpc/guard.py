"""The gate in front of gRPC methods: who calls is looked up for every call, how to look is known from its headers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from trireme.access.gate import Gate
from trireme.access.key_ring import Credential
from trireme.access.tracked_request import RequestTarget
from trireme.core.errors import AccessError, QuotaExceededError
from trireme.frontends.grpc.plan import CallPlan, Method
from trireme.frontends.grpc.status import status_of
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.headers import RequestHeaders, encode_block

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection, OpenCall
    from trireme.protocol.http2.stream import Stream

_BEARER: Final = b"bearer "


class Guard:
    """Stands before methods. Where the gate does not watch a protocol, its methods are left as they are."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._key_header = gate.key_header.encode()

    def guarded(self, method: Method, headers: RequestHeaders) -> Method:
        """The method for calls with these headers, behind the gate."""
        gate = self._gate
        if not gate.watches(method.protocol):
            return method
        target = RequestTarget("gRPC", "POST", headers.path.decode("utf-8", "replace"), method.protocol)
        credential = gate.credential(_key_in(headers, self._key_header)[1])
        return method._replace(open=_GuardedMethod(gate, target, credential, method).open)

    def key_header_of(self, headers: RequestHeaders) -> bytes:
        """The header that carries the client's key, which no model is to see; b"" for none."""
        return b"" if self._gate.keys is None else _key_in(headers, self._key_header)[0]

    def refused(self, headers: RequestHeaders, protocol: str, status: int) -> Callable[[str], None] | None:
        """What to call with the client's address when a call is refused for its headers alone; None where nobody
        wants to know."""
        if self._gate.log is None:
            return None
        target = RequestTarget("gRPC", "POST", headers.path.decode("utf-8", "replace"), protocol)

        def tell(peer: str) -> None:
            tracked = self._gate.arrive(target, peer, self._gate.credential(_key_in(headers, self._key_header)[1]))
            tracked.status = status
            tracked.end()

        return tell


class _GuardedMethod:
    """One way in: the same for all calls with the same headers."""

    __slots__ = ("_credential", "_gate", "_method", "_target")

    def __init__(self, gate: Gate, target: RequestTarget, credential: Credential | None, method: Method) -> None:
        self._gate = gate
        self._target = target
        self._credential = credential
        self._method = method

    def open(self, connection: Connection, stream: Stream, plan: CallPlan) -> OpenCall | None:
        """The call, or None after a refusal was sent."""
        tracked = self._gate.arrive(self._target, connection.peer, self._credential)
        try:
            self._gate.check(self._target, tracked)
            if not self._method.counts_messages:
                tracked.begin_request()
            elif self._gate.keys is not None:
                tracked.look_again = partial(self._look_again, connection.peer)
        except AccessError as error:
            tracked.status = status_of(error)
            tracked.end()
            connection.http2.outbound.send_headers(stream, refusal_block(error), True)
            return None
        call = self._method.open(connection, stream, plan)
        if call is not None:
            call.tracked = tracked
        return call

    def _look_again(self, peer: str) -> None:
        self._gate.check(self._target, self._gate.arrive(self._target, peer, self._credential))


def refusal_block(error: AccessError) -> bytes:
    """The header block that answers a call that is not let in."""
    block = grpc.trailers_only(status_of(error), error.message)
    if isinstance(error, QuotaExceededError):
        wait_s = error.retry_after_s
        block += encode_block(((b"retry-after", b"%d" % wait_s), (b"grpc-retry-pushback-ms", b"%d" % (1000 * wait_s))))
    return block


def _key_in(headers: RequestHeaders, key_header: bytes) -> tuple[bytes, bytes | None]:
    """The header that carries the key and the key, from the one of one's choice before `authorization`."""
    chosen = headers.first(key_header) if key_header else None
    if chosen is not None:
        return key_header, (chosen[7:] if chosen[:7].lower() == _BEARER else chosen).strip()
    bearer = headers.first(b"authorization")
    if bearer is None or bearer[:7].lower() != _BEARER:
        return b"", None
    return b"authorization", bearer[7:].strip()
