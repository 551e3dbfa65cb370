"""Engines that speculate, also with an executor that goes ahead as one on a device does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ahead_executor import AheadExecutor

from trireme.llm.engine import EngineCore
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import Executor
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions, SpeculationMode
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams

EXECUTORS: dict[str, Callable[..., Executor]] = {
    "numpy": NumpyExecutor,
    "ahead": AheadExecutor,
    "torch": lambda spec, weights, options: TorchExecutor(spec, host_tensors(weights), options),
}


@dataclass(frozen=True)
class Request:
    """What to continue, how, and after how many tokens to give up."""

    prompt: list[int]
    params: SamplingParams
    end_ids: tuple[int, ...] = ()
    give_up_at: int = 0


class Speculating:
    """An engine, and whole answers of it."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core

    def answers(self, requests: Sequence[Request]) -> list[list[SequenceOutput]]:
        """Everything that comes of requests that run together; none is begun before all of them are there."""
        inboxes: list[queue.Queue[SequenceOutput]] = [queue.Queue() for _ in requests]
        reached, released = threading.Event(), threading.Event()

        def hold(output: SequenceOutput) -> None:
            reached.set()
            released.wait(timeout=60)

        self.core.submit([0], SamplingParams(max_tokens=1), hold)
        assert reached.wait(timeout=60)
        for request, inbox in zip(requests, inboxes, strict=True):
            self._submit(request, inbox)
        released.set()
        found: list[list[SequenceOutput]] = []
        for inbox in inboxes:
            found.append([inbox.get(timeout=60)])
            while found[-1][-1].finish_reason is None:
                found[-1].append(inbox.get(timeout=60))
        assert [outputs[-1].error for outputs in found] == [""] * len(requests)
        return found

    def tokens(self, requests: Sequence[Request]) -> list[list[int]]:
        return [[token for one in outputs for token in one.token_ids] for outputs in self.answers(requests)]

    def _submit(self, request: Request, inbox: queue.Queue[SequenceOutput]) -> None:
        number, written = self.core.new_id(), 0

        def listen(output: SequenceOutput) -> None:
            nonlocal written
            written += len(output.token_ids)
            if request.give_up_at and written >= request.give_up_at:
                self.core.cancel(number)
            inbox.put(output)

        self.core.submit(request.prompt, request.params, listen, end_ids=request.end_ids, sequence_id=number)


@pytest.fixture
def speculating() -> Iterator[Callable[..., Speculating]]:
    """Starts engines that are closed in the end; `draft` is the folder of a draft model."""
    with ExitStack() as stack:

        def start(
            folder: Path, mode: str, kind: str = "numpy", blocks: int = 64, draft: Path | None = None, **options: Any
        ) -> Speculating:
            chosen = EngineOptions(block_size=4, speculation=SpeculationMode(mode), **options)
            executor = _executor(kind, folder, replace(chosen, cache_bytes=blocks * block_bytes(folder)))
            drafting = None
            if draft is not None:
                drafting = _executor(kind, draft, replace(chosen, cache_bytes=blocks * block_bytes(draft)))
            core = EngineCore(executor, chosen, draft=drafting)
            stack.callback(core.close)
            return Speculating(core)

        yield start


def _executor(kind: str, folder: Path, options: EngineOptions) -> Executor:
    spec = read_spec(folder)
    return EXECUTORS[kind](spec, load_weights(folder, spec), options)


def block_bytes(folder: Path) -> int:
    spec = read_spec(folder)
    return 8 * spec.layer_count * 4 * spec.kv_head_count * spec.head_size


@pytest.fixture
def executor_of() -> Callable[..., Executor]:
    """Makes executors by their kind."""

    def make(kind: str, folder: Path, blocks: int, **options: Any) -> Executor:
        return _executor(kind, folder, EngineOptions(block_size=4, cache_bytes=blocks * block_bytes(folder), **options))

    return make


@pytest.fixture
def request_of() -> type[Request]:
    """The class."""
    return Request
