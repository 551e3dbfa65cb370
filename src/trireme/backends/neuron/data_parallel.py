"""`torch.neuron`, `torch_neuron` and `torch_neuronx` where there are no NeuronCores: batches spread over the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from trireme.backends.compiled.model_load import thread_share

__all__ = ["DataParallel", "__getattr__"]


class DataParallel:
    """Cuts a batch into a slice for every core, runs the slices at the same time and joins the answers in order.

    A batch with fewer rows than there are cores takes as many slices as it has rows.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        device_ids: Sequence[int] | None = None,
        dim: int = 0,
        set_dynamic_batching: bool = True,
    ) -> None:
        self.device_ids = list(device_ids) if device_ids is not None else [0]
        self.dim = dim
        self.num_workers = len(self.device_ids)
        """Threads at a time; more than the process has cores to compute with are not started. Counts until the first
        call."""
        self._model = model
        self._torch: Any = importlib.import_module("torch")
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, *inputs: Any) -> Any:
        """The model's answer for the whole batch."""
        rows = {int(tensor.shape[self.dim]) for tensor in inputs}
        if len(rows) != 1:
            raise ValueError(f"the inputs must have the same size along dimension {self.dim}, found {sorted(rows)}")
        count = min(rows.pop(), len(self.device_ids))
        if count < 2:
            return self._run(inputs)
        slices = zip(*(self._torch.tensor_split(tensor, count, self.dim) for tensor in inputs), strict=True)
        return self._joined(list(self._threads().map(self._run, slices)))

    def _run(self, inputs: Sequence[Any]) -> Any:
        with self._torch.no_grad():  # holds for one thread only; answers from a device have no gradients either
            return self._model(*inputs)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            count = max(1, min(self.num_workers, thread_share()))
            one_slice = partial(self._torch.set_num_threads, max(1, thread_share() // count))
            self._pool = ThreadPoolExecutor(count, "neuron-core", initializer=one_slice)
        return self._pool

    def _joined(self, answers: Sequence[Any]) -> Any:
        first = answers[0]
        if isinstance(first, dict):
            return {key: self._joined([answer[key] for answer in answers]) for key in first}
        if isinstance(first, list | tuple):
            return type(first)(self._joined(parts) for parts in zip(*answers, strict=True))
        return self._torch.cat(list(answers), self.dim)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"the CPU's stand-in for Neuron's PyTorch has no '{name}', only 'DataParallel': models are compiled, and "
        "placed on cores, on a machine that has them"
    )
