"""The way of a request into its model: found, checked against the configuration, and handed to the scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from trireme.config.options.trace import TraceSettings
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import InvalidArgumentError, QueueFullError, ServingError, stopping_error
from trireme.core.request import SEQUENCE_START, InferenceRequest
from trireme.core.tensor import Tensor
from trireme.core.threads.pools import create_threads
from trireme.memory.system import SystemRegion
from trireme.registry.model import Model
from trireme.registry.registry import ModelRegistry
from trireme.server.response_stages import ResponseStages
from trireme.server.shared_memory import SharedMemory
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing
from trireme.server.validation import check_request, correlation_error

MAX_ID_CHARACTERS: Final = 64 << 10
MAX_PARAMETER_CHARACTERS: Final = 4 << 20
"""Of all parameters of a request that are texts: they are written to workers on the event loop's thread."""


class Inference:
    """Implements `core.ports.InferencePort`."""

    def __init__(
        self,
        registry: ModelRegistry,
        clock: Clock = monotonic_ns,
        tracing: Tracing | None = None,
        shared_memory: SharedMemory | None = None,
        max_queue_size: int = 0,
    ) -> None:
        self.find = registry.find_to_infer
        """`find(name, version)` is the model that serves, or a placeholder where it is being loaded for the request, or
        raises the error that says why there is none."""
        self.loaded = registry.loaded
        """`await loaded(name, version)` is the model itself, never a placeholder, for what has to be known of a model
        before there is a request for it."""
        self._clock = clock
        self._tracing = tracing or Tracing(TraceSettingsStore(TraceSettings()))
        self._shared_memory = shared_memory if shared_memory is not None and shared_memory.is_allowed else None
        self._max_queue_size = max_queue_size or sys.maxsize
        self._threads = create_threads("outputs")
        self.on_refused: Callable[[InferenceRequest, str], None] | None = None
        """Told of clients' requests that are not taken, and why."""
        self._is_exiting = False
        self._exit_ns = 0

    def begin_exit(self) -> None:
        """From now on only what was begun is carried on: steps of running requests, and running sequences."""
        self._is_exiting = True
        self._exit_ns = self._clock()

    def infer(self, request: InferenceRequest) -> None:
        """Resolves, checks and enqueues; raises ServingError where the request is refused."""
        self.infer_on(self.find(request.model_name, request.model_version), request)

    def infer_on(self, model: Model, request: InferenceRequest) -> None:
        """The same for a model that was found before. Where another copy serves in its place by now, that one gets
        the request."""
        try:
            if len(request.id) > MAX_ID_CHARACTERS:
                raise InvalidArgumentError(
                    f"the id of the request has {len(request.id)} characters, more than the {MAX_ID_CHARACTERS} "
                    "that it may have"
                )
            if request.parameters:
                _check_parameters(request)
            if not model.is_serving:
                if request.parent is None or model.is_placeholder:
                    model = self.find(request.model_name, request.model_version)
                if model.is_placeholder:
                    self._wait_at(model, request)
                    return
            check_request(model, request)
            if model.is_sequence:
                mismatch = correlation_error(model, request)
                if mismatch is not None:
                    raise mismatch
            if self._is_exiting:
                self._refuse_new(model, request)
            if model.scheduler.pending_count >= self._max_queue_size:
                self._refuse_if_full(model, request)
            if model.reshaped_inputs:
                _reshape_inputs(model, request)
            request.served_version = model.version_text
            request.answer_stats = model.stats
            if not request.arrival_ns:
                request.arrival_ns = self._clock()
            self._prepare_responses(model, request)
            model.scheduler.enqueue(request)
        except ServingError as error:
            if isinstance(request.respond, ResponseStages):
                request.respond.drop()
            if request.trace is not None:
                self._tracing.refuse(request, error)
            if self.on_refused is not None and request.parent is None:
                self.on_refused(request, error.message)
            raise

    def _refuse_if_full(self, model: Model, request: InferenceRequest) -> None:
        """What a running request asks for is taken, and a model's own bound is its scheduler's to watch."""
        batching = model.config.dynamic_batching
        has_bound = batching is not None and batching.default_queue_policy.max_queue_size > 0
        if request.parent is None and not has_bound:
            raise QueueFullError(
                f"Exceeds maximum queue size: {self._max_queue_size} requests wait for model '{model.name}', which is "
                "the limit. Use --max-queue-size, or max_queue_size of the model, to change it."
            ).for_request(request.id)

    def _prepare_responses(self, model: Model, request: InferenceRequest) -> None:
        """Puts the stages that the request's responses are to pass before whoever waits for them."""
        parent = request.parent
        if request.trace is not None or (parent is not None and parent.trace is not None):
            self._tracing.begin(model.name, request)
        regions: list[SystemRegion] | None = None
        if self._shared_memory is not None and parent is None:
            regions = self._shared_memory.regions_of(request)
        if request.trace is not None or request.output_parameters is not None or regions or model.output_reshapes:
            request.respond = ResponseStages(model, request, self._tracing, regions, self._threads)

    def _wait_at(self, placeholder: Model, request: InferenceRequest) -> None:
        """Leaves the request where it waits for its model; it comes back to `infer_on` with the model itself."""
        if self._is_exiting:
            self._refuse_new(placeholder, request)
        if not request.arrival_ns:
            request.arrival_ns = self._clock()
        placeholder.scheduler.enqueue(request)

    def _refuse_new(self, model: Model, request: InferenceRequest) -> None:
        """An ensemble is let in, and its first step refused: the error then says which ensemble it was."""
        if model.is_sequence and request.correlation_id and not request.flags & SEQUENCE_START:
            return
        root = request
        while root.parent is not None:
            root = root.parent
        is_new = root is request or root.arrival_ns >= self._exit_ns
        if is_new and not model.config.is_ensemble:
            raise stopping_error(request.id)


def _check_parameters(request: InferenceRequest) -> None:
    size = sum(len(value) for value in request.parameters.values() if isinstance(value, str))
    if size > MAX_PARAMETER_CHARACTERS:
        raise InvalidArgumentError(
            f"the parameters of the request have {size} characters, more than the {MAX_PARAMETER_CHARACTERS} that they "
            "may have; send long texts as inputs"
        )


def _reshape_inputs(model: Model, request: InferenceRequest) -> None:
    inputs = dict(request.inputs)
    for check in model.reshaped_inputs:
        tensor = inputs.get(check.name)
        if tensor is not None:
            inputs[check.name] = Tensor(tensor.name, tensor.datatype, check.reshaped(tensor.shape), tensor.data)
    request.inputs = inputs
