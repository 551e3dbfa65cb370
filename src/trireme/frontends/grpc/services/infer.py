"""ModelInfer: one request, one response."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from trireme.core.clock import monotonic_ns
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, ServingError, UnsupportedError, unwritten_error
from trireme.core.request import InferenceRequest, RespondCallback
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.trace import GRPC_SEND_START, GRPC_WAITREAD_END, GRPC_WAITREAD_START, Trace
from trireme.frontends.grpc.call import Call
from trireme.frontends.grpc.plan import EXPLAIN_PARAMETER, CallPlan
from trireme.frontends.grpc.unary import UnaryCall
from trireme.protocol.http2.stream import Stream
from trireme.protocol.v2.grpc_long_request import DecodedRequest, RequestNames, decode_long, peek_names
from trireme.protocol.v2.grpc_request import InferTemplate, LongRequestError
from trireme.server.call import CalledModel
from trireme.server.long_work import INLINE_STRINGS_BYTES, count_strings_of, has_many_strings
from trireme.server.single_response import SingleResponse
from trireme.server.trace.tracing import Arrival
from trireme.server.trace.waterfall import waterfall

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

_DECOUPLED: Final = "ModelInfer RPC doesn't support models with decoupled transaction policy"


class InferCall(UnaryCall):
    """Runs a request without a task: the core calls `respond` when it is done."""

    __slots__ = ("_single",)

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self._single: SingleResponse | None = None

    def handle(self, message: Buffer) -> None:
        if self.is_done:
            return
        try:
            decoded = self.context.decoder.decode(message)
        except LongRequestError:
            check_named_model(self, peek_names(message))
            self.ordered_work().compute(partial(decode_long, message), partial(self._start, message))
            return
        self._start(message, decoded)

    def _start(self, message: Buffer, decoded: DecodedRequest) -> None:
        self.note_read()
        context = self.context
        template, request_id, raw_contents = decoded
        if self.tracked is not None:
            self.tracked.model = template.model_name
        inference = context.calls.open(template.model_name, template.model_version)
        if inference.is_decoupled:
            error = UnsupportedError(_DECOUPLED)
            context.calls.refuse_unread(template.model_name, template.model_version, error)
            raise error
        respond = self._respond_late if context.response_delay_s else self.respond
        request = self._request = request_of(self, template, request_id, raw_contents, respond)
        arrival = arrival_of(self)
        if may_be_long(template, message) and has_many_strings(request.inputs):
            start = partial(start_counted, inference, request, arrival)
            self.ordered_work().compute(partial(count_strings_of, request.inputs), start)
        else:
            inference.start(request, arrival)

    def respond(self, response: InferenceResponse) -> None:
        """Answers the client; called by the core."""
        if self.is_done:
            return
        if not response.is_final or self._single is not None or response.is_empty:
            if self._single is None:
                self._single = SingleResponse()
            single = self._single.take(response)
            if single is None:
                return
            response = single
        request = self._request
        try:
            if response.error is not None or request is None:
                self.fail(response.error or InternalError("a response without its request"))
                return
            if self.plan.wants_explanation and request.trace is not None:
                response.parameters = {**(response.parameters or {}), EXPLAIN_PARAMETER: explanation(request.trace)}
            pieces, size = self.context.encoder.encode(request, response)
            if request.trace is not None:
                request.trace.mark(GRPC_SEND_START, monotonic_ns())
            self.reply(pieces, size)
        except Exception as error:
            if response.error is None and request is not None:
                request.note_unanswered(unwritten_error(error).message)
            if isinstance(error, ServingError):
                self.fail(error)
            else:
                self._fail_unexpectedly(error)

    def _begin(self, message: Buffer) -> None:
        if self.context.process_delay_s:
            self.context.loop.call_later(self.context.process_delay_s, super()._begin, message)
        else:
            UnaryCall._begin(self, message)

    def _respond_late(self, response: InferenceResponse) -> None:
        self.context.loop.call_later(self.context.response_delay_s, self.respond, response)


def check_named_model(call: Call, names: RequestNames | None) -> None:
    """Raises the error that says why a long message, of which nobody has read more yet, is for no model."""
    if names is not None:
        if call.tracked is not None:
            call.tracked.model = names.model_name
        call.context.calls.open(names.model_name, names.model_version)


def request_of(
    call: Call, template: InferTemplate, request_id: str, raw_contents: list[Buffer], respond: RespondCallback
) -> InferenceRequest:
    """The request that a message is, with the inputs that are in shared memory; raises ServingError."""
    if template.has_regions:
        raw_contents = template.with_regions(raw_contents, call.context.calls.read_region)
    return template.request(request_id, raw_contents, respond, call.plan.forwarded)


def may_be_long(template: InferTemplate, message: Buffer) -> bool:
    """Whether it is worth looking for inputs with many strings."""
    return len(message) > INLINE_STRINGS_BYTES or template.has_regions


def arrival_of(call: Call) -> Arrival | None:
    """How a request came that has just been read; None where it cannot be traced."""
    wants_explanation = call.plan.wants_explanation
    if not wants_explanation and not call.context.tracing.is_on:
        return None
    traceparent = partial(_traceparent, call.stream)
    return Arrival(GRPC_WAITREAD_START, GRPC_WAITREAD_END, monotonic_ns(), wants_explanation, traceparent)


def start_counted(
    inference: CalledModel, request: InferenceRequest, arrival: Arrival | None, inputs: dict[str, Tensor]
) -> None:
    """Sends a request in whose strings took long to count."""
    request.inputs = inputs
    inference.start(request, arrival)


def explanation(trace: Trace) -> str:
    """Where the time of a request went, as its client gets to see it."""
    return orjson.dumps(waterfall(trace)).decode()


def _traceparent(stream: Stream) -> str:
    return (stream.headers.first(b"traceparent") or b"").decode("ascii", "replace")
