"""The requests that one execution takes together, and how long its phases took."""

from __future__ import annotations

from typing import NamedTuple

from trireme.core.request import InferenceRequest


class Batch:
    """Requests handed to an instance in one call; never concatenated."""

    __slots__ = ("requests", "size", "start_ns")

    def __init__(self, requests: list[InferenceRequest], size: int, start_ns: int) -> None:
        self.requests = requests
        self.size = size  # the sum of the requests' batch sizes
        self.start_ns = start_ns  # when the instance was given the batch


class BatchTiming(NamedTuple):
    """Nanoseconds of one execution by phase, as statistics report them."""

    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int
