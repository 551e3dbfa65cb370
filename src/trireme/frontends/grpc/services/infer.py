"""ModelInfer: one request, one response."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from trireme.core.clock import monotonic_ns
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, ServingError, UnsupportedError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import CountedTensor, Tensor
from trireme.core.trace import GRPC_SEND_START, GRPC_WAITREAD_END, GRPC_WAITREAD_START, Trace
from trireme.frontends.grpc.calls import UnaryCall
from trireme.frontends.grpc.plan import EXPLAIN_PARAMETER, CallPlan
from trireme.frontends.long_work import INLINE_STRINGS_BYTES, is_long_text
from trireme.protocol.http2.stream import Stream
from trireme.protocol.v2.grpc_request import InferTemplate
from trireme.server.classification import classify
from trireme.server.shared_memory import OutputTarget, SharedMemory, write_outputs
from trireme.server.tracing import Tracing
from trireme.server.waterfall import waterfall

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection
    from trireme.registry.model import Model

_DECOUPLED: Final = "ModelInfer RPC doesn't support models with decoupled transaction policy"


class InferCall(UnaryCall):
    """Runs a request without a task: the core calls `respond` when it is done."""

    __slots__ = ("_classified", "_early", "_targets")

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self._classified: tuple[Model, dict[str, int]] | None = None
        self._early: list[InferenceResponse] | None = None
        self._targets: dict[str, OutputTarget] | None = None  # where outputs go that are not sent

    def handle(self, message: Buffer) -> None:
        if self.is_done:
            return
        context = self.context
        inference = context.server.inference
        template, request_id, raw_contents = context.decoder.decode(message)
        model = inference.find(template.model_name, template.model_version)
        if model.is_decoupled:
            raise UnsupportedError(_DECOUPLED)
        may_be_long = len(message) > INLINE_STRINGS_BYTES
        if template.has_regions:
            may_be_long = True
            memory = context.server.shared_memory
            raw_contents = template.with_regions(raw_contents, memory.read)
            self._targets = targets_of(template, memory)
        respond = self._respond_late if context.response_delay_s else self.respond
        request = self._request = template.request(request_id, raw_contents, respond, self.plan.forwarded)
        if self.plan.wants_explanation:
            request.trace = begin_explanation(context.server.tracing)
        elif context.server.tracing.is_on:
            request.trace = begin_trace(context.server.tracing, model.name, self.stream)
        if template.classifications is not None:
            self._classified = (model, template.classifications)
        if may_be_long and has_many_strings(request):
            self.ordered_work().compute(partial(count_strings_of, request), partial(inference.infer_on, model))
        else:
            inference.infer_on(model, request)

    def respond(self, response: InferenceResponse) -> None:
        """Answers the client; called by the core."""
        if self.is_done:
            return
        if not response.is_final or self._early is not None or response.is_empty:
            single = self._only_response(response)
            if single is None:
                return
            response = single
        request = self._request
        if response.error is not None or request is None:
            self.fail(response.error or InternalError("a response without its request"))
            return
        try:
            if self._classified is not None:
                response.outputs = classify_outputs(*self._classified, response.outputs)
            if self._targets is not None:
                response.outputs = write_outputs(self._targets, response.outputs)
            if self.plan.wants_explanation and request.trace is not None:
                response.parameters = {**(response.parameters or {}), EXPLAIN_PARAMETER: explanation(request.trace)}
            pieces, size = self.context.encoder.encode(request, response)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)
        else:
            if request.trace is not None:
                request.trace.mark(GRPC_SEND_START, monotonic_ns())
            self.reply(pieces, size)

    def _begin(self, message: Buffer) -> None:
        if self.context.process_delay_s:
            self.context.loop.call_later(self.context.process_delay_s, super()._begin, message)
        else:
            UnaryCall._begin(self, message)

    def _respond_late(self, response: InferenceResponse) -> None:
        self.context.loop.call_later(self.context.response_delay_s, self.respond, response)

    def _only_response(self, response: InferenceResponse) -> InferenceResponse | None:
        """The one response of a model that used its right to several wrongly; None as long as more may come."""
        if self._early is None:
            self._early = []
        if not response.is_empty:
            self._early.append(response)
        if not response.is_final:
            return None
        if len(self._early) == 1 or response.error is not None:
            return self._early[-1]
        error = InternalError(f"expected a single response, got {len(self._early)}")
        return InferenceResponse.of_error(error)


def targets_of(template: InferTemplate, memory: SharedMemory) -> dict[str, OutputTarget] | None:
    """Where outputs go that are not sent; raises ServingError where there is no such memory."""
    places = template.output_places
    if not places:
        return None
    return {name: memory.target(place.region, place.offset, place.size_bytes) for name, place in places.items()}


def has_many_strings(request: InferenceRequest) -> bool:
    """Whether it takes long to check the inputs."""
    return any(map(is_long_text, request.inputs.values()))


def count_strings_of(request: InferenceRequest) -> InferenceRequest:
    """The request with its long inputs walked through, so that nobody does it on the event loop's thread."""
    inputs = request.inputs
    request.inputs = {name: CountedTensor(entry) if is_long_text(entry) else entry for name, entry in inputs.items()}
    return request


def begin_trace(tracing: Tracing, model_name: str, stream: Stream) -> Trace | None:
    """A trace for a request that has just been read, where one is due."""
    trace = tracing.sample(model_name, lambda: (stream.headers.first(b"traceparent") or b"").decode("ascii", "replace"))
    return None if trace is None else _mark_read(trace)


def begin_explanation(tracing: Tracing) -> Trace:
    """The same for a request whose client wants to see it."""
    return _mark_read(tracing.explain())


def explanation(trace: Trace) -> str:
    """Where the time of a request went, as its client gets to see it."""
    return orjson.dumps(waterfall(trace)).decode()


def _mark_read(trace: Trace) -> Trace:
    now_ns = monotonic_ns()
    trace.mark(GRPC_WAITREAD_START, now_ns)
    trace.mark(GRPC_WAITREAD_END, now_ns)
    return trace


def classify_outputs(model: Model, counts: dict[str, int], outputs: list[Tensor]) -> list[Tensor]:
    """The outputs, with classes in place of those that were asked for as such; raises ServingError."""
    is_batched = model.max_batch_size > 0
    return [
        classify(tensor, counts[tensor.name], model.labels(tensor.name), is_batched)
        if tensor.name in counts
        else tensor
        for tensor in outputs
    ]
