"""What happens to a response between its model and the client, in one order.

A response passes, from the model outwards:

1. the scheduler's own stages: the response cache keeps it (`scheduling.cache`), and where the model preserves the order
   of its requests it waits for its turn (`scheduling.response_order`);
2. the trace, which notes when it passed and what it held;
3. the guard: a model that was given zeros in place of memory that its client cut off has answered nothing;
4. the reshape of outputs, from the shape that the model gives to the one that the configuration promises;
5. the parameters of the outputs: the best classes in place of a tensor, tensors put into shared memory;
6. the front end, which encodes it.

Only the stages that a request needs are built, and most requests need none. Where one of them fails, an error takes the
place of the response and passes the rest of the way; the statistics count it among the failures.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from trireme.core.errors import ServingError, unwritten_error
from trireme.core.request import InferenceRequest, OutputParameters, RespondCallback
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.trace import Trace
from trireme.memory.system import SystemRegion
from trireme.registry.input_check import fill_wildcards
from trireme.registry.model import Model
from trireme.server.classification import classify
from trireme.server.long_work import INLINE_CLASSES_BYTES, OrderedWork
from trireme.server.trace.tracing import Tracing

log = logging.getLogger(__name__)


class ResponseStages:
    """Takes the responses to one request from its model, in place of the client, and passes them on to it."""

    __slots__ = (
        "_model",
        "_output_parameters",
        "_regions",
        "_request",
        "_respond",
        "_threads",
        "_trace",
        "_tracing",
        "_work",
    )

    def __init__(
        self,
        model: Model,
        request: InferenceRequest,
        tracing: Tracing,
        regions: Sequence[SystemRegion] | None,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._model = model
        self._trace: Trace | None = request.trace
        self._tracing = tracing
        self._regions = regions or ()  # those that the inputs lie in
        self._output_parameters: OutputParameters | None = request.output_parameters
        self._threads = threads
        self._work: OrderedWork | None = None
        self._request: InferenceRequest | None = request  # until its last response
        self._respond = request.respond

    def __call__(self, response: InferenceResponse) -> None:
        trace = self._trace
        if trace is not None:
            self._model.stats.counting_failures.guard(self._tracing.passed, trace, response)
        request = self._request
        if response.is_final:
            self._request = None  # which leads back here: only the garbage collector would free them
        try:
            guarded = self._guarded(response) if self._regions else response
            if guarded is not None and self._model.output_reshapes:
                self._reshape(guarded)
        except Exception as error:
            log.exception("a response of model '%s' could not be made what its client is to get", self._model.name)
            guarded = InferenceResponse([], unwritten_error(error), is_final=response.is_final)
        if guarded is not None:
            if guarded.error is not None and response.error is None:
                _note_failure(request, guarded.error)
            if self._output_parameters is None:
                self._respond(guarded)
            else:
                self._apply(request, self._output_parameters, guarded)
        if trace is not None and response.is_final and trace.parent is None:
            self._model.stats.counting_failures.guard(self._tracing.finish, trace)

    def drop(self) -> None:
        """The request was refused: it leads here, and nothing may lead back."""
        self._request = None

    def _guarded(self, response: InferenceResponse) -> InferenceResponse | None:
        """The response, or the one error in place of all that come after memory was cut off."""
        for region in self._regions:
            if region.is_cut_off and response.error is None:
                return InferenceResponse.of_error(region.cut_off_error()) if response.is_final else None
        return response

    def _reshape(self, response: InferenceResponse) -> None:
        reshapes = self._model.output_reshapes
        if any(tensor.name in reshapes for tensor in response.outputs):
            response.outputs = [_reshaped(self._model, tensor) for tensor in response.outputs]

    def _apply(
        self, request: InferenceRequest | None, output_parameters: OutputParameters, response: InferenceResponse
    ) -> None:
        """Passes the response on as the client wants it. Finding classes in a large tensor is long work, and later
        responses wait for it."""
        applied = partial(apply_output_parameters, self._model, output_parameters, response)
        had_error = response.error is not None
        if _is_long(output_parameters, response):
            if self._work is None:
                self._work = OrderedWork(asyncio.get_running_loop(), self._threads, partial(_lose, self._respond))
            self._work.compute(applied, partial(self._pass_on, request, had_error))
        elif self._work is not None:
            self._work.follow(lambda: self._pass_on(request, had_error, applied()))
        else:
            self._pass_on(request, had_error, applied())

    def _pass_on(self, request: InferenceRequest | None, had_error: bool, response: InferenceResponse) -> None:
        if response.error is not None and not had_error:
            _note_failure(request, response.error)
        self._respond(response)


def apply_output_parameters(
    model: Model, output_parameters: OutputParameters, response: InferenceResponse
) -> InferenceResponse:
    """The response with its outputs as the client wants them, or with the error that they cannot be so. May run on a
    thread."""
    if response.error is not None:
        return response
    try:
        response.outputs = [_with_parameters(model, output_parameters, tensor) for tensor in response.outputs]
        return response
    except ServingError as error:
        return InferenceResponse([], error, is_final=response.is_final)
    except Exception as error:
        log.exception("the outputs of model '%s' could not be given as the client asked for them", model.name)
        return InferenceResponse([], unwritten_error(error), is_final=response.is_final)


def _with_parameters(model: Model, output_parameters: OutputParameters, tensor: Tensor) -> Tensor:
    count = output_parameters.class_counts.get(tensor.name)
    if count is not None:
        tensor = classify(tensor, count, model.labels(tensor.name), model.max_batch_size > 0)
    target = output_parameters.targets.get(tensor.name)
    return tensor if target is None else target.write(tensor)


def _is_long(output_parameters: OutputParameters, response: InferenceResponse) -> bool:
    return any(
        len(tensor.data) > INLINE_CLASSES_BYTES and tensor.name in output_parameters.class_counts
        for tensor in response.outputs
    )


def _reshaped(model: Model, tensor: Tensor) -> Tensor:
    config = model.output_reshapes.get(tensor.name)
    if config is None or config.reshape is None:
        return tensor
    split = 1 if model.max_batch_size else 0
    batch, given = tuple(tensor.shape[:split]), tuple(tensor.shape[split:])
    if len(given) != len(config.reshape):
        return tensor  # not the shape the reshape is about: left to the client as the model made it
    shape = batch + fill_wildcards(config.dims, config.reshape, given)
    return Tensor(tensor.name, tensor.datatype, shape, tensor.data)


def _note_failure(request: InferenceRequest | None, error: ServingError) -> None:
    """The model has answered well, and its client does not get that."""
    if request is not None:
        request.note_unanswered(error.message)
        if request.trace is not None:
            request.trace.error = error.message


def _lose(respond: RespondCallback, error: Exception) -> None:
    log.error("a response was lost on its way to the client", exc_info=error)
    respond(InferenceResponse.of_error(unwritten_error(error)))
