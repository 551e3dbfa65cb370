"""ModelInfer: one request, one response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, ServingError, UnsupportedError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.grpc.calls import UnaryCall
from trireme.frontends.grpc.plan import CallPlan
from trireme.protocol.http2.stream import Stream
from trireme.server.classification import classify

if TYPE_CHECKING:
    from trireme.frontends.grpc.connection import GrpcConnection
    from trireme.registry.model import Model

_DECOUPLED = "ModelInfer RPC doesn't support models with decoupled transaction policy"


class InferCall(UnaryCall):
    """Runs a request without a task: the core calls `respond` when it is done."""

    __slots__ = ("_classified", "_early")

    def __init__(self, connection: GrpcConnection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self._classified: tuple[Model, dict[str, int]] | None = None
        self._early: list[InferenceResponse] | None = None

    def handle(self, message: Buffer) -> None:
        if self.is_done:
            return
        context = self.context
        inference = context.server.inference
        template, request_id, raw_contents = context.decoder.decode(message)
        model = inference.find(template.model_name, template.model_version)
        if model.config.is_decoupled:
            raise UnsupportedError(_DECOUPLED)
        respond = self._respond_late if context.response_delay_s else self.respond
        request = self._request = template.request(request_id, raw_contents, respond, self.plan.forwarded)
        if template.classifications is not None:
            self._classified = (model, template.classifications)
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
            pieces, size = self.context.encoder.encode(request, response)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)
        else:
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


def classify_outputs(model: Model, counts: dict[str, int], outputs: list[Tensor]) -> list[Tensor]:
    """The outputs, with classes in place of those that were asked for as such; raises ServingError."""
    is_batched = model.config.max_batch_size > 0
    return [
        classify(tensor, counts[tensor.name], model.labels(tensor.name), is_batched)
        if tensor.name in counts
        else tensor
        for tensor in outputs
    ]
