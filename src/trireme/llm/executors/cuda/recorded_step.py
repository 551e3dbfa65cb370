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

    def play(self, inputs: torch.Tensor) -> None:
        """On the current stream."""
        self.inputs.copy_(inputs)
        self.graph.replay()


class StepRecorder:
    """Records the steps of one engine, whose passing memory they share."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, inputs: torch.Tensor, step: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> RecordedStep:
        """On the current stream, whose work is done; nothing runs yet. The device is not waited for as a whole."""
        graph = torch.cuda.CUDAGraph()
        with _ONE_AT_A_TIME:
            pool, self._pool = (
                self._pool,
                torch.cuda.graph_pool_handle(),
            )  # of a recording that fails the old one is lost
            graph.capture_begin(pool, capture_error_mode="thread_local")  # others may use the device meanwhile
            try:
                logits, tokens = step()
            finally:
                graph.capture_end()
            self._pool = pool
        return RecordedStep(graph, inputs, logits, tokens)


def give_memory_back() -> None:
    """What PyTorch keeps for later."""
    with _ONE_AT_A_TIME:
        torch.cuda.empty_cache()
