"""What is remembered of one traced request: when it reached which mark, with whom it ran, and what it set going."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from trireme.core.tensor import Tensor

REQUEST_START = "REQUEST_START"
QUEUE_START = "QUEUE_START"
COMPUTE_START = "COMPUTE_START"
COMPUTE_INPUT_END = "COMPUTE_INPUT_END"
COMPUTE_OUTPUT_START = "COMPUTE_OUTPUT_START"
COMPUTE_END = "COMPUTE_END"
INFER_RESPONSE_COMPLETE = "INFER_RESPONSE_COMPLETE"
REQUEST_END = "REQUEST_END"
HTTP_RECV_START = "HTTP_RECV_START"
HTTP_RECV_END = "HTTP_RECV_END"
HTTP_SEND_START = "HTTP_SEND_START"
HTTP_SEND_END = "HTTP_SEND_END"
GRPC_WAITREAD_START = "GRPC_WAITREAD_START"
GRPC_WAITREAD_END = "GRPC_WAITREAD_END"
GRPC_SEND_START = "GRPC_SEND_START"
GRPC_SEND_END = "GRPC_SEND_END"

TENSOR_QUEUE_INPUT = "TENSOR_QUEUE_INPUT"
TENSOR_BACKEND_OUTPUT = "TENSOR_BACKEND_OUTPUT"


class SpanIds(NamedTuple):
    """Where a request stands in a distributed trace."""

    trace_id: int
    span_id: int
    parent_id: int
    """0 where the trace begins here."""


class Trace:
    """One request's record. Steps of an ensemble and calls from inside a model are its children; every record of a
    tree has a number of its own. Filled on the event loop's thread and not changed once its request is answered."""

    __slots__ = (
        "batch_size",
        "children",
        "deliver",
        "durations",
        "error",
        "id",
        "is_cached",
        "is_streamed",
        "marks",
        "model_name",
        "model_version",
        "parent",
        "request_id",
        "span",
        "tensors",
        "wants_tensors",
        "wants_timestamps",
    )

    def __init__(
        self, trace_id: int, wants_timestamps: bool = True, wants_tensors: bool = False, parent: Trace | None = None
    ) -> None:
        self.id = trace_id
        self.parent = parent
        self.wants_timestamps = wants_timestamps
        self.wants_tensors = wants_tensors
        self.model_name = ""
        self.model_version = 0
        self.request_id = ""
        self.batch_size = 0
        """How many rows ran together with this request's, its own among them; 0 before it ran."""
        self.is_cached = False
        """Whether the answer came out of the response cache."""
        self.is_streamed = False
        """Whether it was answered response by response."""
        self.error: str | None = None
        """What it failed of, in the words of its answer."""
        self.marks: list[tuple[str, int]] = []
        """Names and nanoseconds of the monotonic clock, in the order they were told."""
        self.durations: dict[str, tuple[int, int]] = {}
        """What the model itself has measured, by name: how often, and nanoseconds altogether."""
        self.tensors: list[tuple[str, Tensor]] = []
        self.children: list[Trace] = []
        self.span: SpanIds | None = None  # set where traces go to an OpenTelemetry collector
        self.deliver: Callable[[Trace], None] | None = None  # takes it when its request is answered, once

    def mark(self, name: str, ns: int) -> None:
        """The request reaches a mark."""
        if self.wants_timestamps:
            self.marks.append((name, ns))

    def began(self, start_ns: int, batch_size: int) -> None:
        """A request that is answered while it runs is being executed."""
        self.batch_size = batch_size
        self.mark(COMPUTE_START, start_ns)

    def ran(self, start_ns: int, input_ns: int, infer_ns: int, end_ns: int, batch_size: int) -> None:
        """The request's execution, among others of its batch, is over."""
        if (COMPUTE_START, start_ns) not in self.marks:
            self.began(start_ns, batch_size)
        self.mark(COMPUTE_INPUT_END, start_ns + input_ns)
        self.mark(COMPUTE_OUTPUT_START, start_ns + input_ns + infer_ns)
        self.mark(COMPUTE_END, end_ns)

    def keep(self, activity: str, tensors: list[Tensor]) -> None:
        """Remembers tensors as they are at this mark."""
        if self.wants_tensors:
            self.tensors += [(activity, tensor) for tensor in tensors]

    def begin_child(self, trace_id: int) -> Trace:
        """The record of a request that this one makes."""
        child = Trace(trace_id, self.wants_timestamps, self.wants_tensors, self)
        if self.span is not None:
            child.span = SpanIds(self.span.trace_id, self.new_span_id(), self.span.span_id)
        self.children.append(child)
        return child

    def begin_span(self, context: tuple[int, int] | None) -> None:
        """Makes the request part of the distributed trace of its client, or begins one."""
        trace_id, parent_id = context or (secrets.randbits(128) or 1, 0)
        self.span = SpanIds(trace_id, self.new_span_id(), parent_id)

    def new_span_id(self) -> int:
        """A number that no other span has."""
        return secrets.randbits(64) or 1

    @property
    def carrier(self) -> str | None:
        """The context for whoever works for this request, as JSON of the headers that carry it."""
        if self.span is None:
            return None
        return f'{{"traceparent":"00-{self.span.trace_id:032x}-{self.span.span_id:016x}-01"}}'

    def first(self, name: str) -> int | None:
        """When the mark of that name was first reached; None where it was not."""
        for mark, ns in self.marks:
            if mark == name:
                return ns
        return None


def read_traceparent(text: str) -> tuple[int, int] | None:
    """The trace and the span that a client's W3C `traceparent` names; None where it names none."""
    fields = text.strip().split("-")
    if len(fields) < 4 or len(fields[1]) != 32 or len(fields[2]) != 16:
        return None
    try:
        trace_id, parent_id = int(fields[1], 16), int(fields[2], 16)
    except ValueError:
        return None
    return (trace_id, parent_id) if trace_id and parent_id else None
