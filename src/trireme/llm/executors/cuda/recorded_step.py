"""Steps that the device has recorded once, and plays again with other inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

_ONE_AT_A_TIME = threading.Lock()
"""While a step is recorded, the device refuses other engines of the process their recordings."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """Where a step's inputs go, and where it leaves its results."""

    graph: torch.cuda.CUDAGraph
    inputs: torch.Tensor
    logits: torch.Tensor
    tokens: torch.Tensor


class StepRecorder:
    """Records the steps of one engine, whose passing memory they share."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, inputs: torch.Tensor, step: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> RecordedStep:
        """On the current stream, whose work is done; nothing runs yet. The device is not waited for as a whole."""
        graph = torch.cuda.CUDAGraph()
        with _ONE_AT_A_TIME:
            try:
                logits, tokens = self._capture(graph, step)
            except BaseException:
                self._pool = torch.cuda.graph_pool_handle()  # that of a recording that failed is lost
                raise
        return RecordedStep(graph, inputs, logits, tokens)

    def _capture(
        self, graph: torch.cuda.CUDAGraph, step: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        graph.capture_begin(self._pool, capture_error_mode="thread_local")  # others may use the device meanwhile
        try:
            return step()
        finally:
            graph.capture_end()


def give_memory_back() -> None:
    """What PyTorch keeps for later."""
    with _ONE_AT_A_TIME:
        torch.cuda.empty_cache()
