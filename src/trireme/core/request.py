"""One inference request on its way through the server: its inputs, what it wants of outputs, who waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from trireme.core.call_excerpt import RecordingCall
from trireme.core.datatype import Parameter
from trireme.core.elements import Buffer
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.trace import Trace

RespondCallback = Callable[[InferenceResponse], None]
CancelCallback = Callable[["InferenceRequest"], None]
CreditCallback = Callable[[], None]
ModelCalledCallback = Callable[[str], None]

ReadRegion = Callable[[str, int, int], Buffer]
"""Region, offset and size to the bytes there; raises ServingError where they are not all in the region."""

SEQUENCE_START: Final = 1
SEQUENCE_END: Final = 2


class RegionPlace:
    """What a request says about one input or output; whether there is such a region is not known here."""

    __slots__ = ("offset", "region", "size_bytes")

    def __init__(self, region: str, offset: int, size_bytes: int) -> None:
        self.region = region
        self.offset = offset
        self.size_bytes = size_bytes


class OutputTarget(Protocol):
    """Room for one output of one request."""

    def write(self, tensor: Tensor) -> Tensor:
        """Copies the data in and returns the tensor without it; raises ServingError where it does not fit."""


class OutputParameters:
    """What a client wants of outputs other than the tensors themselves, by the name of the output. Equal requests may
    share one object, so nobody changes it."""

    __slots__ = ("class_counts", "places", "targets")

    def __init__(
        self,
        class_counts: dict[str, int],
        places: dict[str, RegionPlace],
        targets: dict[str, OutputTarget] | None = None,
    ) -> None:
        self.class_counts = class_counts  # how many of the best classes stand in place of the tensor
        self.places = places  # where the data goes, as the request says it
        self.targets = targets or {}  # the same once the server has found that memory


class AnswerStats(Protocol):
    """Counts what became of responses behind their model. Used on the event loop's thread."""

    def record_unanswered(self, request: InferenceRequest, message: str) -> None:
        """Its model has responded, but the client gets an error in place of that; never raises."""


class InferenceRequest:
    """What a client asked for, who waits for the answer, and when it reached which mark.

    `respond` is called on the event loop's thread, once per response; exactly one of them, the last, has
    `is_final` set. Whoever holds the request at the moment sets `on_cancel` to learn of a cancellation, and where there
    are `credits`, `on_credit` to learn that a response has been passed on and another one may come.
    """

    __slots__ = (
        "answer_stats",
        "arrival_ns",
        "batch_size",
        "correlation_id",
        "credits",
        "flags",
        "id",
        "inputs",
        "is_cancelled",
        "is_satisfied",
        "is_unanswered",
        "measured",
        "model_name",
        "model_version",
        "on_cancel",
        "on_credit",
        "output_parameters",
        "parameters",
        "parent",
        "priority",
        "queue_ns",
        "recorded",
        "requested_outputs",
        "respond",
        "served_version",
        "timeout_us",
        "trace",
    )

    def __init__(
        self,
        model_name: str,
        model_version: str,
        request_id: str,
        inputs: dict[str, Tensor],
        respond: RespondCallback,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version  # as asked for; "" is the newest
        self.served_version = ""  # as resolved, once the model is found
        self.id = request_id
        self.inputs = inputs  # in the client's order
        self.requested_outputs: tuple[str, ...] = ()  # empty: every output
        self.output_parameters: OutputParameters | None = None  # None: outputs as they are
        self.parameters: dict[str, Parameter] = {}
        self.correlation_id: int | str = 0
        self.flags = 0
        self.priority = 0
        self.timeout_us = 0
        self.batch_size = 1  # set by validation; 1 for models without a batch dimension
        self.arrival_ns = 0
        self.queue_ns = 0
        self.parent: InferenceRequest | None = None  # the request whose execution made this one
        self.trace: Trace | None = None  # where its way is recorded
        self.measured: Mapping[str, tuple[int, int]] | None = None  # by its model: counts, nanoseconds
        self.recorded: RecordingCall | None = None  # where a recording takes it
        self.respond = respond
        self.answer_stats: AnswerStats | None = None  # its model's, once that is found
        self.is_unanswered = False  # a response could not be passed on, and this is counted
        self.is_cancelled = False
        self.is_satisfied = False  # it was ended because its client has all that it wanted
        self.on_cancel: CancelCallback | None = None
        self.credits = 0  # how many responses may come before the first of them is taken; 0: any number
        self.on_credit: CreditCallback | None = None

    def cancel(self) -> None:
        """Marks the request as no longer wanted and tells its present holder; later calls do nothing."""
        if self.is_cancelled:
            return
        self.is_cancelled = True
        if self.on_cancel is not None:
            self.on_cancel(self)

    def finish(self) -> None:
        """Ends the request as a cancellation does, because its client has all that it wanted: it was not given up."""
        if not self.is_cancelled:
            self.is_satisfied = True
            self.cancel()

    def note_unanswered(self, message: str) -> None:
        """Counts that a response of its model could not be passed on, and why; of several the first counts."""
        if not self.is_unanswered:
            self.is_unanswered = True
            if self.answer_stats is not None:
                self.answer_stats.record_unanswered(self, message)

    @property
    def is_given_up(self) -> bool:
        """Whether its client did not wait for the end of the answer."""
        return self.is_cancelled and not self.is_satisfied and not self.is_unanswered

    def add_credit(self) -> None:
        """Tells the present holder that one more response may come."""
        if self.on_credit is not None:
            self.on_credit()


class StepRequest(InferenceRequest):
    """A step of an ensemble that makes models wait for the steps behind them. Whoever runs it calls `on_call` with the
    name of each model that its execution asks, because one that waits for this very step could not answer."""

    __slots__ = ("on_call",)

    def __init__(
        self,
        model_name: str,
        model_version: str,
        request_id: str,
        inputs: dict[str, Tensor],
        respond: RespondCallback,
        on_call: ModelCalledCallback,
    ) -> None:
        super().__init__(model_name, model_version, request_id, inputs, respond)
        self.on_call = on_call


def notify_calling_steps(model_name: str, caller: InferenceRequest | None) -> None:
    """Tells every step that the caller belongs to, however far above it, that the model is being called."""
    while caller is not None:
        if isinstance(caller, StepRequest):
            caller.on_call(model_name)
        caller = caller.parent
