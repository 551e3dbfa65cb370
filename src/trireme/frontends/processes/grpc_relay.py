"""gRPC in a front-end process: plain ModelInfer calls are read here, and all other calls are passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

from trireme.core.elements import Buffer
from trireme.core.errors import LeaseEndedError, NoRoomError, ServingError, stopping_error
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import GRPC_SERVICE
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.grpc.plan import CallPlan, CallPlanner, Method
from trireme.frontends.grpc.unary import UnaryCall
from trireme.frontends.inflight import CHARGED_FROM_BYTES, LARGE_ANSWER_BYTES, InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.client_connection import ClientConnection, RelayOwner
from trireme.frontends.processes.grpc_upstream import PassedCall, Upstream
from trireme.frontends.processes.infer_relay import decode_error, settings_of
from trireme.frontends.processes.process_link import Message
from trireme.protocol.grpc_frames import PREFIX_BYTES
from trireme.protocol.http2.headers import RequestHeaders
from trireme.protocol.http2.stream import Stream
from trireme.protocol.v2.grpc_request import LongRequestError
from trireme.server.server import InferenceServer

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

_INFER: Final = b"/inference.GRPCInferenceService/ModelInfer"
_MAX_MESSAGE_BYTES: Final = 16 << 10
"""Of requests that are read here; longer ones are passed on as they come."""


class GrpcRelay:
    """What all gRPC connections of a front-end process share."""

    def __init__(
        self, owner: RelayOwner, options: GrpcFrontendOptions, server: InferenceServer, inflight: InflightBytes
    ) -> None:
        self.owner = owner
        self.context = ServiceContext(server, options, asyncio.get_running_loop(), SharedLimits(inflight=inflight))
        infer = Method(_INFER, "inference", self._open_infer, is_inference=True)
        passed = Method(b"", "", self._open_passed)
        self.planner = _RelayPlanner(options, {_INFER: infer}, passed)
        self.connections: set[GrpcConnection] = set()
        self.upstreams: dict[int, Upstream] = {}
        """By the identity of the connection."""

    def check_progress(self) -> None:
        """Looks for clients that neither go on sending nor take what they asked for."""
        for connection in list(self.connections):
            connection.check_progress(monotonic())

    def upstream_of(self, connection: Connection) -> Upstream:
        """Where the calls of a connection are passed on to."""
        return self.upstreams[id(connection)]

    def _open_infer(self, connection: Connection, stream: Stream, plan: CallPlan) -> RelayedInferCall:
        return RelayedInferCall(connection, stream, plan, self)

    def _open_passed(self, connection: Connection, stream: Stream, plan: CallPlan) -> PassedCall:
        return self.upstream_of(connection).open(stream, plan)


class _RelayPlanner(CallPlanner):
    """Plans for plain ModelInfer calls; the server process plans all others, refusals too."""

    def __init__(self, options: GrpcFrontendOptions, methods: Mapping[bytes, Method], passed: Method) -> None:
        super().__init__(options, methods)
        self._passed = CallPlan(passed)

    def plan(self, headers: RequestHeaders) -> CallPlan:
        planned = super().plan(headers)
        if planned.method is None or planned.wants_explanation or planned.request_encoding != "identity":
            return self._passed
        return planned


class RelayedInferCall(UnaryCall):
    """Implements `RelayedCall`: the request is read here, and the response written; what is between is not."""

    __slots__ = ("_call", "_message", "_relay")

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan, relay: GrpcRelay) -> None:
        super().__init__(connection, stream, plan)
        self._relay = relay
        self._message: Buffer = b""
        self._call = 0

    def receive(self, data: Buffer, is_ended: bool) -> None:
        """A message that is not to be read here is passed on from its first bytes on, and so is one that would have to
        be kept until all of it has come, unless it is too small to count."""
        if self._assembler is None:
            size = int.from_bytes(data[:PREFIX_BYTES], "big")  # with the mark of compression in front, beyond all sizes
            is_small = size <= CHARGED_FROM_BYTES - PREFIX_BYTES
            is_whole = is_ended and size == len(data) - PREFIX_BYTES
            if size > _MAX_MESSAGE_BYTES or len(data) < PREFIX_BYTES or not (is_small or is_whole):
                self._pass_on(data, is_ended)
                return
            if is_small and is_whole:
                self._begin(data[PREFIX_BYTES:])
                return
        UnaryCall.receive(self, data, is_ended)

    def handle(self, message: Buffer) -> None:
        if self.is_done:
            return
        self._message = message
        request: InferenceRequest | None = None
        try:
            template, request_id, raw_contents = self.context.decoder.decode(message)
            if not template.has_regions and template.output_parameters is None:
                request = template.request(request_id, raw_contents, _ignore, self.plan.forwarded)
        except (LongRequestError, ServingError):
            pass
        if request is None:  # it is not plain, or wrong
            self._pass_on_whole()
            return
        self._request = request
        request.on_cancel = self._cancel
        owner = self._relay.owner
        if owner.leased and not (request.correlation_id or request.flags or request.priority or request.timeout_us):
            start = owner.leased.get((request.model_name, request.model_version))
            if start is not None:
                request.respond = self._answer
                if start(request):
                    return
                request.on_cancel = self._cancel
        call = self._call = owner.next_call()
        owner.calls[call] = self
        tensors = [(tensor.name, tensor.datatype, tensor.shape, tensor.data) for tensor in request.inputs.values()]
        owner.link.send(
            (
                messages.INFER,
                call,
                self.connection_number,
                GRPC_SERVICE,
                request.model_name,
                request.model_version,
                request.id,
                tensors,
                request.requested_outputs,
                settings_of(request),
                False,
            )
        )

    @property
    def connection_number(self) -> int:
        return self._relay.upstream_of(self.connection).number

    def settle(self, kind: int, message: Message) -> None:
        """The end of the request."""
        request = self._request
        if self.is_done or request is None:
            return
        if kind == messages.ANSWER:
            request.served_version = message[2]
            self._answer(InferenceResponse([Tensor(*output) for output in message[3]], None, message[4]))
        elif kind == messages.SEND_WHOLE:
            self._pass_on_whole()
        else:
            self.fail(decode_error(message[2]))
        self._tell_unsent()

    def _answer(self, response: InferenceResponse) -> None:
        """The response to the request, of the server process or of a worker of this one's."""
        request = self._request
        if self.is_done or request is None:
            return
        if response.error is not None:
            self._fail_or_pass_on(response.error)
        else:
            try:
                pieces, size = self.context.encoder.encode(request, response)
            except ServingError as error:
                self.fail(error)
            except Exception as error:
                self._fail_unexpectedly(error)
            else:
                if size > LARGE_ANSWER_BYTES and (excess := self.connection.inflight.excess_of_answer(size)):
                    self.fail(NoRoomError(excess))
                else:
                    self.reply(pieces, size)
        if self.connection.http2.outbound.queued_bytes:
            self._tell_unsent()

    def _tell_unsent(self) -> None:
        """Has the server process count what waits for the client, unless that has left."""
        upstream = self._relay.upstreams.get(id(self.connection))
        if upstream is not None:
            self._relay.owner.connections[upstream.number].tell_unsent()

    def _fail_or_pass_on(self, error: ServingError) -> None:
        if isinstance(error, LeaseEndedError):
            self._pass_on_whole()
        else:
            self.fail(error)

    def _pass_on_whole(self) -> None:
        """Has the server process read the message."""
        message, self._message = self._message, b""
        self._pass_on(b"".join((len(message).to_bytes(PREFIX_BYTES, "big"), message)), True)

    def _pass_on(self, data: Buffer, is_ended: bool) -> None:
        """Has the server process go on with the call."""
        stream = self.stream
        upstream = self._relay.upstreams.get(id(self.connection))
        if upstream is None:  # the client has left
            self.abandon()
            return
        refusal = None if self._request is None else stopping_error(self._request.id)
        self._close()
        passed = upstream.open(stream, self.plan, refusal)
        if not upstream.is_closed:
            stream.call = passed
            passed.receive(data, is_ended)

    def _cancel(self, request: InferenceRequest) -> None:
        self._relay.owner.drop_call(self._call)


class GrpcClientConnection(ClientConnection):
    """A client's connection, whose HTTP/2 is spoken here."""

    def __init__(self, owner: RelayOwner, number: int, relay: GrpcRelay) -> None:
        super().__init__(owner, number)
        self._relay = relay
        self._used = owner.used
        self._inner = _HeldConnection(self, relay)
        self._upstream = relay.upstreams[id(self._inner)] = Upstream(self._inner, number, self.relay)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._is_lost:
            self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._used.add(self.number)
        self._inner.data_received(data)
        upstream = self._upstream
        if upstream.calls or upstream.outbound.pieces:
            upstream.open_windows()
        if self._told_unsent_bytes or self._is_write_paused or self._inner.http2.outbound.queued_bytes:
            self.tell_unsent()

    @property
    def unsent_bytes(self) -> int:
        return super().unsent_bytes + self._inner.http2.outbound.queued_bytes

    def eof_received(self) -> bool:
        return False

    def is_gone(self) -> None:
        """The same behind a TLS handshake that has failed, where no loss is told."""
        if not self._is_lost:
            self._inner.connection_lost(None)
            del self._relay.upstreams[id(self._inner)]
        super().is_gone()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._inner.resume_writing()
        self._upstream.open_windows()

    def _resume(self) -> None:
        if not self._inner.is_held_off:
            super()._resume()

    def write(self, data: Buffer) -> None:
        """What the server process writes are frames of its own connection."""
        self._upstream.received(bytes(data))
        self.tell_unsent()

    def close_behind(self) -> None:
        """Calls that are read here are answered before the end, and a client that is just sending the next one is told
        so instead of being reset."""
        self._inner.lingers = True
        self._upstream.close()
        self._inner.stop_accepting()


class _HeldConnection(GrpcConnection):
    """The HTTP/2 of a client that has to wait where the server process does not keep up: nothing is read meanwhile, and
    no time passes that it has to go on."""

    __slots__ = ("_client",)

    def __init__(self, client: GrpcClientConnection, relay: GrpcRelay) -> None:
        super().__init__(relay.context, relay.planner, relay.connections)
        self._client = client

    def _is_held_back(self, transport: asyncio.Transport) -> bool:
        return self._client.is_held_back

    def _read_again(self, transport: asyncio.Transport) -> None:
        if not self._client.is_held_back:
            super()._read_again(transport)

    def _abandon_calls(self) -> None:
        """Those that are passed on at once, because the number of the connection is another's afterwards."""
        read_here = []
        for stream in list(self.http2.streams.values()):
            if isinstance(stream.call, RelayedInferCall):
                read_here.append(stream.abandon_call)
            else:
                stream.abandon_call()
        self.context.leaving.do(read_here)


def _ignore(response: InferenceResponse) -> None:
    """Responses come from the server process."""
