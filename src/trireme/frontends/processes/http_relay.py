"""HTTP in a front-end process: plain inference requests are read here, and all else is passed on as it came."""

from __future__ import annotations

import asyncio
from typing import Final

from trireme.core.elements import Buffer
from trireme.core.errors import LeaseEndedError, ServingError, stopping_error
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import HTTP_SERVICE
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.infer_answer import InferAnswer
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, HeadReader, MalformedHeadError, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Router, route
from trireme.frontends.inflight import ConnectionBytes, InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.client_connection import ClientConnection, RelayOwner
from trireme.frontends.processes.infer_relay import decode_error
from trireme.frontends.processes.process_link import Message
from trireme.protocol.http1.compression import IDENTITY
from trireme.protocol.json_codec.text import SlowTextError
from trireme.protocol.v2.binary import InferDecoder, InferEncoder, split_body, take_tensors
from trireme.protocol.v2.json_document import InferDocument
from trireme.protocol.v2.repeated_documents import DocumentFrames

_HEAD_END: Final = b"\r\n\r\n"
_MAX_BODY_BYTES: Final = 16 << 10
"""Of requests that are read here; longer ones are passed on without being looked at."""
_MAX_WAITING_BYTES: Final = 64 << 10
"""What a client may send ahead while it waits for an answer, before nothing more is read."""
_REST_S: Final = 0.02
"""How long the rest of a request is waited for before its beginning is passed on: many clients send head and body one
behind the other, and what takes longer is for the server process to watch."""

_NO_SETTINGS: Final = (0, 0, 0, 0)
"""Correlation id, flags, priority and timeout of requests that any queue can have."""

Decoded = tuple[InferDocument, str, dict[str, Tensor]]
"""What a body says, the request's id, and its inputs."""


class HttpRelay:
    """What all connections of a front-end process share: heads, documents and fragments that were seen before."""

    def __init__(self, options: HttpFrontendOptions, inflight: InflightBytes) -> None:
        endpoint = Endpoint("inference", _never, is_plain=True, forwards_headers=True)
        infer = route("/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?/infer", POST=endpoint)
        self._endpoint = endpoint
        self._router = Router([infer], options)
        self._heads = HeadReader(self._resolve)
        self._known_heads = self._heads.known
        self._decoder = InferDecoder(options.max_input_size_bytes, has_regions=True)
        self._frames = DocumentFrames()
        self.encoder = InferEncoder()
        self.background = BackgroundAnswers()
        self.inflight = inflight
        self.half_closed_grace_s = options.limits.half_closed_grace_s

    def head_of(self, data: bytes) -> tuple[RequestHead | None, int]:
        """The head at the beginning of the bytes and its size; None where it is not that of a plain inference."""
        end = data.find(_HEAD_END) + 4
        if end < 4:
            return None, 0
        head = self._known_heads.get(data[:end])
        if head is None:
            try:
                head = self._heads.read(data[:end])
            except MalformedHeadError:
                return None, 0
        return (None if head.endpoint is None else head), end

    def decode(self, head: RequestHead, body: bytes) -> Decoded | None:
        """What a plain request says; None for all that is not plain, or wrong."""
        try:
            text, offset = split_body(body, head.header_length)
            if not text:
                return None
            if head.header_length is None:
                repeated = self._frames.decode(text)
                if repeated is not None:
                    return repeated[0], "", repeated[1]
            document, request_id = self._decoder.decode(text, head.header_length is None)
            if document.has_regions or document.output_parameters is not None or document.mistyped:
                return None
            inputs = take_tensors(document, body, offset, head.model_name)
            if head.header_length is None:
                self._frames.keep(text, document)
        except (ServingError, SlowTextError):
            return None
        return document, request_id, inputs

    def _resolve(self, head: RequestHead) -> None:
        """Leaves the endpoint of plain heads alone."""
        self._router.resolve(head)
        is_plain = (
            head.endpoint is self._endpoint
            and head.is_keep_alive
            and not head.expects_continue
            and not head.accepts_events
            and not head.wants_explanation
            and head.form_boundary is None
            and head.content_encoding == IDENTITY
            and 0 < head.content_length <= _MAX_BODY_BYTES
        )
        if not is_plain:
            head.endpoint = None


class HttpClientConnection(ClientConnection):
    """Implements `AnswerSink`, for the one request that is read here, and `RelayedCall`. While the server process has
    bytes of the client that it has not answered, all that comes goes the same way."""

    def __init__(self, owner: RelayOwner, number: int, relay: HttpRelay) -> None:
        super().__init__(owner, number)
        self._relay_owner = owner
        self._relay = relay
        self.is_lost = False
        self.inflight = ConnectionBytes(self._relay.inflight)
        self._is_relaying = False
        self._relayed_bytes = 0
        self._begun = b""  # a request whose rest is on its way
        self._rest_timer: asyncio.TimerHandle | None = None
        self._waiting = b""  # came while a request was under way
        self._call: int | None = None
        self._exchange: Exchange | None = None
        self._document: InferDocument | None = None
        self._bytes = b""  # the request as it came
        self._closes = False  # behind the answer
        self._has_ended = False  # the client sends nothing more

    # --- from the client

    def data_received(self, data: bytes) -> None:
        if self._is_relaying:
            self._pass_on(data)
        elif self._exchange is not None:
            self._waiting += data
            if len(self._waiting) > _MAX_WAITING_BYTES:
                self._pause()
        else:
            if self._begun:
                data = self._begun + data
                self._begun = b""
            self._read(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resume()

    def _resume(self) -> None:
        if not self._is_write_paused:
            super()._resume()

    def eof_received(self) -> bool:
        self._pass_on_begun()
        if self._exchange is None or self._transport is None or self._transport.get_extra_info("ssl_object"):
            return super().eof_received()
        # The client may still wait for its answer, or be gone.
        self._has_ended = True
        asyncio.get_running_loop().call_later(self._relay.half_closed_grace_s, self._transport.abort)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self._rest_timer is not None:
            self._rest_timer.cancel()
        if self._call is not None:
            self._relay_owner.drop_call(self._call)
            self._call = None
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None
        super().connection_lost(error)

    def _read(self, data: bytes) -> None:
        """Sends a whole plain request on as what it says, all else as it is."""
        head, end = self._relay.head_of(data)
        missing = 1 if head is None else head.content_length - (len(data) - end)
        if head is None or missing < 0:
            self._pass_on(data)
            return
        if missing:
            self._begun = data
            if self._rest_timer is None:
                self._rest_timer = asyncio.get_running_loop().call_later(_REST_S, self._pass_on_begun)
            return
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        decoded = self._relay.decode(head, data[end:])
        if decoded is None:
            self._pass_on(data)
        else:
            self._infer(head, decoded, data)

    def _infer(self, head: RequestHead, decoded: Decoded, data: bytes) -> None:
        document, request_id, inputs = decoded
        owner = self._relay_owner
        exchange = self._exchange = Exchange(self, head, b"")
        request = exchange.request = InferenceRequest(head.model_name, head.model_version, request_id, inputs, _ignore)
        self._document = document
        self._bytes = data
        owner.used.add(self.number)
        settings = None
        if document.has_parameters or head.forwarded:
            parameters = {**document.parameters, **(head.forwarded or {})}
            settings = (document.correlation_id, document.flags, document.priority, document.timeout_us, parameters)
            request.parameters = parameters
        if owner.leased and (settings is None or settings[:4] == _NO_SETTINGS):
            start = owner.leased.get((head.model_name, head.model_version))
            if start is not None:
                request.requested_outputs = document.requested_outputs
                request.respond = self._answer_leased
                if start(request):
                    return
        tensors = [(tensor.name, tensor.datatype, tensor.shape, tensor.data) for tensor in inputs.values()]
        call = self._call = owner.next_call()
        owner.calls[call] = self
        self._link.send(
            (
                messages.INFER,
                call,
                self.number,
                HTTP_SERVICE,
                head.model_name,
                head.model_version,
                request_id,
                tensors,
                document.requested_outputs,
                settings,
                not document.is_all_binary,
            )
        )

    def _pass_on_begun(self) -> None:
        self._rest_timer = None
        if self._begun:
            begun, self._begun = self._begun, b""
            self._pass_on(begun)

    def _tell_end(self) -> None:
        """The client's end is told behind all that it has sent."""
        if self._has_ended and self._exchange is None:
            self._pass_on_begun()
            self._link.send((messages.ENDED, self.number))

    def _pass_on(self, data: bytes) -> None:
        self._is_relaying = True
        self._relayed_bytes += len(data)
        self.relay(data)

    # --- from the server process

    def idle(self, received_bytes: int) -> None:
        """The server process had answered all that it had received by then."""
        if received_bytes == self._relayed_bytes:
            self._is_relaying = False

    def settle(self, kind: int, message: Message) -> None:
        """The end of the request."""
        exchange, document = self._exchange, self._document
        self._call = None
        if exchange is None or document is None:
            return
        request = exchange.request
        if kind == messages.ANSWER and request is not None:
            request.served_version = message[2]
            outputs = [Tensor(*output) for output in message[3]]
            self._respond(exchange, document, InferenceResponse(outputs, None, message[4]))
            if self.inflight.held_bytes:
                self.tell_unsent()
        elif kind == messages.FAIL:
            self._respond(exchange, document, InferenceResponse.of_error(decode_error(message[2])))
        elif kind == messages.REFUSE:
            exchange.send_error(decode_error(message[2]))
        elif self._closes:  # the server process reads nothing more of the client
            if self._relay_owner.is_stopping and request is not None:
                exchange.send_error(stopping_error(request.id))
            else:  # and its client may ask again on another connection
                super().close_behind()
        else:
            self._exchange = self._document = None
            waiting, self._waiting = self._waiting, b""
            self._pass_on(self._bytes + waiting)
            self._resume()
            self._tell_end()

    def _answer_leased(self, response: InferenceResponse) -> None:
        """The end of a request that has run on a worker of this process's."""
        exchange, document = self._exchange, self._document
        if isinstance(response.error, LeaseEndedError):
            self.settle(messages.SEND_WHOLE, (messages.SEND_WHOLE,))
        elif exchange is not None and document is not None:
            self._respond(exchange, document, response)
            if self.inflight.held_bytes:
                self.tell_unsent()

    @property
    def connection_number(self) -> int:
        return self.number

    @property
    def unsent_bytes(self) -> int:
        """Also what is being written as JSON."""
        return super().unsent_bytes + self.inflight.held_bytes

    def close_behind(self) -> None:
        """Closes when the request that is under way is answered."""
        if self._exchange is None:
            super().close_behind()
        else:
            self._closes = True

    def _respond(self, exchange: Exchange, document: InferDocument, response: InferenceResponse) -> None:
        answer = InferAnswer(exchange, self._relay.background, document, self._relay.encoder)
        exchange.take_with(answer.respond, response)

    # --- AnswerSink

    @property
    def peer(self) -> str:
        """Nobody asks for it here."""
        return "-"

    def complete(self, exchange: Exchange, data: Buffer) -> None:
        try:
            self.write(data)
        except Exception:
            if self._transport is not None:
                self._transport.abort()  # nobody knows what of it is out
            raise
        if self._told_unsent_bytes:
            self.tell_unsent()
        self._exchange = self._document = None
        self._bytes = b""
        if self._closes:
            self.close_behind()
            return
        if self._waiting:
            waiting, self._waiting = self._waiting, b""
            self._resume()
            self._read(waiting)
        self._tell_end()

    def write_part(self, exchange: Exchange, data: Buffer) -> None:
        self.write(data)

    def is_next(self, exchange: Exchange) -> bool:
        return True

    def note_refused(self) -> None:
        """Nothing that takes long to read is read here."""

    def close_after(self, exchange: Exchange) -> None:
        """Answers to plain requests tell their length; this one breaks off before."""
        self._closes = True
        self._waiting = b""


def _ignore(response: InferenceResponse) -> None:
    """Responses come from the server process."""


def _never(exchange: Exchange) -> None:
    """The endpoint stands for a kind of head, and is not called."""
