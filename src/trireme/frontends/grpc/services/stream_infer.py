"""ModelStreamInfer: requests and responses side by side in one call."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, ServingError, unwritten_error
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.grpc.call import log
from trireme.frontends.grpc.plan import EXPLAIN_PARAMETER, CallPlan
from trireme.frontends.grpc.services.infer import (
    arrival_of,
    check_named_model,
    explanation,
    may_be_long,
    request_of,
    start_counted,
)
from trireme.frontends.grpc.status import STOPPING, status_of
from trireme.frontends.grpc.streaming import StreamCall
from trireme.frontends.inflight import LARGE_ANSWER_BYTES
from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.stream import Stream
from trireme.protocol.v2.grpc_long_request import DecodedRequest, decode_long_or_refuse, peek_names
from trireme.protocol.v2.grpc_request import LongRequestError
from trireme.server.call import CalledModel
from trireme.server.long_work import INLINE_DEFLATE_BYTES, count_strings_of, has_many_strings
from trireme.server.trace.tracing import Arrival

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

Encoded = tuple[list[Buffer], int]


class StreamedRequest:
    """One request of a stream. Those of models that are not decoupled are answered in the order they came."""

    __slots__ = (
        "_call",
        "_waiting",
        "_wants_empty_final",
        "charged_bytes",
        "held_bytes",
        "is_complete",
        "is_counted",
        "is_ordered",
        "request",
    )

    def __init__(self, call: StreamInferCall) -> None:
        self._call = call
        self.request: InferenceRequest | None = None
        self.charged_bytes = 0  # for a message that came compressed, until it is answered
        self.is_counted = False  # among the requests in flight of a key
        self.held_bytes = 0  # for one that did not
        self.is_complete = False
        self.is_ordered = True  # until its model is known to be decoupled
        self._wants_empty_final = False
        self._waiting: list[Encoded | ServingError] | None = None

    def begin(self, message: Buffer) -> None:
        """Decodes and enqueues; a refusal is answered in the stream."""
        call = self._call
        if call.is_done:
            return
        call.ordered.append(self)
        try:
            if call.tracked is not None:
                call.tracked.begin_message()
                self.is_counted = True
            decoded = call.context.decoder.decode(message)
        except LongRequestError:
            self._read_long(message)
            return
        except Exception as error:
            self._refuse("", error)
            return
        self._start(message, decoded)

    def _read_long(self, message: Buffer) -> None:
        call = self._call
        names = peek_names(message)
        try:
            check_named_model(call, names)
        except ServingError as error:
            self._refuse("" if names is None else names.request_id, error)
            return
        work = partial(decode_long_or_refuse, message)
        call.ordered_work().compute(work, partial(self._start_long, message))

    def _start_long(self, message: Buffer, decoded: DecodedRequest | ServingError) -> None:
        self._call.note_read()
        if isinstance(decoded, ServingError):
            connection = self._call.connection
            self._refuse("", decoded)
            connection.note_refused()
        else:
            self._start(message, decoded)

    def _start(self, message: Buffer, decoded: DecodedRequest) -> None:
        call = self._call
        call.note_read()
        context = call.context
        template, request_id, raw_contents = decoded
        try:
            if call.tracked is not None:
                call.tracked.model = template.model_name
            inference = context.calls.open(template.model_name, template.model_version)
            if inference.is_decoupled:
                self.is_ordered = False
                call.ordered.pop()
            self._wants_empty_final = template.parameters.wants_empty_final
            respond = self._respond_late if context.response_delay_s else self.respond
            request = self.request = request_of(call, template, request_id, raw_contents, respond)
            call.inflight[self] = None
            arrival = arrival_of(call)
            if may_be_long(template, message) and has_many_strings(request.inputs):
                start = partial(self._start_counted, inference, request, arrival)
                call.ordered_work().compute(partial(count_strings_of, request.inputs), start)
            else:
                inference.start(request, arrival)
        except Exception as error:
            self._refuse(request_id, error)

    def respond(self, response: InferenceResponse) -> None:
        """One response to the client, who learns even of one that cannot be written; called by the core."""
        if self._call.is_done or self.is_complete:
            return
        try:
            is_explained = response.is_final and self._call.plan.wants_explanation
            encoded = self._encode_explained(response) if is_explained else self._encode(response)
            if encoded is not None:
                self._pass_on(encoded, response.is_final)
            if response.is_final:
                self._complete()
        except Exception as error:
            self._fail(response, error)

    def give_up(self) -> InferenceRequest | None:
        """Nobody waits for it any more; the request, which leads back here, so that one of the two has to let go."""
        request, self.request = self.request, None
        self.is_complete = True
        self._waiting = None
        return request

    def release(self) -> None:
        """Sends what waited for its turn."""
        waiting, self._waiting = self._waiting, None
        for item in waiting or ():
            self._call.deliver_held(item)

    def _start_counted(
        self,
        inference: CalledModel,
        request: InferenceRequest,
        arrival: Arrival | None,
        inputs: dict[str, Tensor],
    ) -> None:
        try:
            start_counted(inference, request, arrival, inputs)
        except Exception as error:
            self._refuse(request.id, error)

    def _respond_late(self, response: InferenceResponse) -> None:
        context = self._call.context
        context.loop.call_later(context.response_delay_s, self.respond, response)

    def _encode(self, response: InferenceResponse) -> Encoded | ServingError | None:
        request = self.request
        assert request is not None
        encoder = self._call.context.encoder
        error = response.error
        if response.is_empty and error is None:
            if not self._wants_empty_final or not response.is_final:
                return None
            return _whole(encoder.encode_empty_final(request))
        if error is None:
            try:
                return encoder.encode_in_stream(request, response)
            except ServingError as failure:
                request.note_unanswered(failure.message)
                error = failure
        if self._call.plan.answers_with_status:
            return error
        return _whole(encoder.encode_execution_error(request, error.message, response.is_final))

    def _encode_explained(self, response: InferenceResponse) -> Encoded | ServingError | None:
        """The request's last message, which tells where its time went; where there would be none, it is the mark that
        ends a decoupled request."""
        request = self.request
        if request is None or request.trace is None:
            return self._encode(response)
        table = explanation(request.trace)
        if not response.is_empty and response.error is None:
            response.parameters = {**(response.parameters or {}), EXPLAIN_PARAMETER: table}
            return self._encode(response)
        encoded = self._encode(response) or _whole(self._call.context.encoder.encode_empty_final(request))
        if isinstance(encoded, ServingError):
            return encoded
        message = service_pb2.ModelStreamInferResponse.FromString(b"".join(encoded[0]))
        message.infer_response.parameters[EXPLAIN_PARAMETER].string_param = table
        return _whole(message.SerializeToString())

    def _refuse(self, request_id: str, error: Exception) -> None:
        if not isinstance(error, ServingError):
            log.exception("a request of a stream failed")
            error = InternalError(f"{type(error).__name__}: {error}")
        # A message even where errors are to end the stream: Triton ends it for requests that ran, and only for those.
        self._pass_on(_whole(self._call.context.encoder.encode_refusal(request_id, error.message)), True)
        self._complete()

    def _fail(self, response: InferenceResponse, error: Exception) -> None:
        """An error takes the place of a response that cannot be written, and is the last of its request: what its model
        still makes would stand behind a gap. Where not even that can be written, the stream ends."""
        call = self._call
        request = self.request
        log.error("a response could not be written to a stream", exc_info=error)
        failure = unwritten_error(error)
        if request is not None and response.error is None:
            request.note_unanswered(failure.message)
        try:
            if request is None or self.is_complete:
                raise failure  # it is not this request's any more
            item: Encoded | ServingError = failure
            if not call.plan.answers_with_status:
                item = _whole(call.context.encoder.encode_execution_error(request, failure.message, True))
            self._pass_on(item, True)
            self._complete()
        except Exception:
            call.break_off(failure)
        if request is not None and not response.is_final:
            request.cancel()

    def _pass_on(self, item: Encoded | ServingError, is_last: bool) -> None:
        """The last one takes the place of what the request holds."""
        request_bytes = self.held_bytes + self.charged_bytes if is_last else 0
        if self._call.is_turn_of(self):
            self._call.deliver(item, request_bytes)
        elif self._call.keep(item, request_bytes):
            if self._waiting is None:
                self._waiting = [item]
            else:
                self._waiting.append(item)

    def _complete(self) -> None:
        self.is_complete = True
        self.request = None  # request and this point at each other
        self._call.completed(self)


class StreamInferCall(StreamCall):
    """The stream: what is in flight, and whose turn it is."""

    __slots__ = ("inflight", "ordered")

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self.inflight: dict[StreamedRequest, None] = {}
        self.ordered: deque[StreamedRequest] = deque()

    @property
    def is_idle(self) -> bool:
        is_busy = self._work is not None and self._work.is_busy
        return not (self.inflight or self.ordered or is_busy or self.is_midway)

    def message_arrived(self, message: Buffer) -> None:
        delay_s = self.context.process_delay_s
        item = StreamedRequest(self)
        item.charged_bytes, self.arriving_bytes = self.arriving_bytes, 0
        item.held_bytes, self.arriving_held_bytes = self.arriving_held_bytes, 0
        if delay_s:
            self.inflight[item] = None
            self.context.loop.call_later(delay_s, self._begin_late, item, message)
        else:
            item.begin(message)

    def half_closed(self) -> None:
        self._end_if_idle()

    def give_up(self, error: ServingError) -> None:
        """Each request gets the error in the stream, which ends with it."""
        if self.is_idle:
            self.finish(grpc.UNAVAILABLE, STOPPING)
            return
        requests = [item.request for item in self.inflight if item.request is not None]
        for request in requests:
            request.respond(InferenceResponse.of_error(error))
        super().give_up(error)
        for request in requests:
            request.cancel()

    def give_up_unread(self, error: ServingError) -> None:
        """Requests that a model has already go on."""
        if self._work is not None and self._work.is_busy:
            self.give_up(error)

    def break_off(self, error: ServingError) -> None:
        """Ends the stream with an error in the place of all that was still to come."""
        self._stop_with(status_of(error), error.message)

    def deliver(self, item: Encoded | ServingError, request_bytes: int = 0) -> None:
        """Sends a message in the place of so much of its request, or ends the stream with an error."""
        if isinstance(item, ServingError):
            self._stop_with(status_of(item), item.message)
        else:
            pieces, size = item
            queued_bytes = self.connection.http2.outbound.queued_bytes
            most_bytes = LARGE_ANSWER_BYTES if self.plan.response_encoding is None else INLINE_DEFLATE_BYTES
            is_large = size + self._outbox_bytes > most_bytes or self._sending is not None
            if not (queued_bytes or is_large or self.context.inflight.is_full) or self._has_room(size, request_bytes):
                self.send(pieces, size)

    def keep(self, item: Encoded | ServingError, request_bytes: int) -> bool:
        """Counts a message that waits for its turn; False where there is no room for it, and the stream ends."""
        if isinstance(item, ServingError):
            return True
        if self._has_room(item[1], request_bytes):
            self.hold_answer(item[1])
            return True
        return False

    def deliver_held(self, item: Encoded | ServingError) -> None:
        """Sends one whose turn has come, in the place that it has had since."""
        if self.is_done:
            return
        size = 0 if isinstance(item, ServingError) else item[1]
        if size:
            self.hold(-size)
        self.deliver(item, size)

    def _has_room(self, size: int, request_bytes: int) -> bool:
        queued_bytes = self.connection.http2.outbound.queued_bytes + self._outbox_bytes
        excess = self.connection.inflight.excess_of_answer(size, queued_bytes, request_bytes)
        if excess:
            self._stop_with(grpc.RESOURCE_EXHAUSTED, excess)
        return not excess

    def is_turn_of(self, item: StreamedRequest) -> bool:
        """Whether what this request answers may go out now."""
        return not item.is_ordered or self.ordered[0] is item

    def completed(self, item: StreamedRequest) -> None:
        """A request had its last response."""
        if item.charged_bytes:
            self.charge(-item.charged_bytes)
        if item.is_counted and self.tracked is not None:
            self.tracked.end_request()
        if item.held_bytes and not self.is_done:
            self.hold(-item.held_bytes)
        self.inflight.pop(item, None)
        ordered = self.ordered
        if ordered and ordered[0] is item:
            while ordered and ordered[0].is_complete:
                ordered.popleft()
                if ordered:
                    ordered[0].release()
        self._end_if_idle()

    def _begin_late(self, item: StreamedRequest, message: Buffer) -> None:
        if self._work is None:
            item.begin(message)
        else:
            self._work.follow(partial(item.begin, message))

    def _end_if_idle(self) -> None:
        if self.is_half_closed and not self.inflight and not self.ordered:
            self.finish()

    def _take_requests(self) -> list[InferenceRequest]:
        inflight, self.inflight = self.inflight, {}
        return [request for item in inflight if (request := item.give_up()) is not None]

    def _close(self) -> None:
        super()._close()
        self.ordered.clear()


def _whole(message: bytes) -> Encoded:
    return [message], len(message)
