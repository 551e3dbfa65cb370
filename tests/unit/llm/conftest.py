"""Tiny language models, each made once, and engines that run them with numpy, PyTorch or the kernels for GPUs."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ahead_executor import AheadExecutor
from safetensors.numpy import load_file, save_file
from tiny_language_models import ANSWER_TOKENS, PROMPTS, TinyModel, build

from trireme.llm.engine import EngineCore
from trireme.llm.executors.cuda.loading import load_on_cuda
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import Executor
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams

EXECUTORS: dict[str, Callable[..., Executor]] = {
    "numpy": NumpyExecutor,
    "ahead": AheadExecutor,
    "torch": lambda spec, weights, options: TorchExecutor(spec, host_tensors(weights), options),
    "cuda": lambda spec, weights, options: load_on_cuda(spec, weights, options, "float32", "cuda"),
}
USUAL_EXECUTOR = os.environ.get("TRIREME_TEST_EXECUTOR", "numpy")
"""Of tests that do not say which: all of these can be run on a GPU."""


class RunningEngine:
    """An engine, and answers put together."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core

    def answers(self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> list[list[SequenceOutput]]:
        """Everything that came for each prompt; none is begun before all of them are there."""
        inboxes: list[queue.Queue[SequenceOutput]] = [queue.Queue() for _ in prompts]
        with self.held():
            for prompt, one, inbox in zip(prompts, params, inboxes, strict=True):
                self.core.submit(prompt, one, inbox.put)
        return [list(self._until_end(inbox)) for inbox in inboxes]

    def beams(self, prompt: Sequence[int], count: int, beams: int) -> list[list[int]]:
        """The continuations that a search finds."""
        inboxes: list[queue.Queue[SequenceOutput]] = [queue.Queue() for _ in range(beams)]
        params = SamplingParams(max_tokens=count, beams=beams, choices=beams)
        self.core.submit(prompt, params, *(inbox.put for inbox in inboxes))
        outputs = [list(self._until_end(inbox)) for inbox in inboxes]
        assert [one[-1].error for one in outputs] == [""] * beams
        return [[token for piece in one for token in piece.token_ids] for one in outputs]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the engine from its next step, in the listener of a sequence of its own."""
        reached, released = threading.Event(), threading.Event()

        def hold(output: SequenceOutput) -> None:
            reached.set()
            released.wait(timeout=60)

        self.core.submit([0], SamplingParams(max_tokens=1), hold)
        assert reached.wait(timeout=60)
        yield
        released.set()

    def tokens(self, prompts: Sequence[Sequence[int]], count: int, **params: Any) -> list[list[int]]:
        """So many tokens behind each of the prompts, which run together."""
        outputs = self.answers(prompts, [SamplingParams(max_tokens=count, **params)] * len(prompts))
        assert [one[-1].error for one in outputs] == [""] * len(prompts)
        return [[token for piece in one for token in piece.token_ids] for one in outputs]

    @staticmethod
    def _until_end(inbox: queue.Queue[SequenceOutput]) -> Iterator[SequenceOutput]:
        while True:
            output = inbox.get(timeout=60)
            yield output
            if output.finish_reason is not None:
                return


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyModel]:
    """A model by the name of its recipe, made when it is first asked for."""
    made: dict[str, TinyModel] = {}

    def make(name: str) -> TinyModel:
        if name not in made:
            made[name] = build(name, tmp_path_factory.mktemp("model"))
        return made[name]

    return make


@pytest.fixture(scope="session")
def model_without_numbers(tiny_model: Callable[[str], TinyModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose model computes no numbers any more once it has read token 5."""
    source, folder = tiny_model("llama").folder, tmp_path_factory.mktemp("model")
    tensors = load_file(source / "model.safetensors")
    tensors["model.embed_tokens.weight"][5] = np.nan
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    return folder


@pytest.fixture(scope="session")
def expected(tiny_model: Callable[[str], TinyModel]) -> Callable[[str], list[list[int]]]:
    """What transformers writes behind each of the prompts, by the name of the model's recipe."""

    @cache
    def of(name: str) -> list[list[int]]:
        found = [tiny_model(name).continuation(prompt, ANSWER_TOKENS) for prompt in PROMPTS]
        assert len({token for tokens in found for token in tokens}) > 5, "a model that repeats itself proves little"
        return found

    return of


@pytest.fixture(scope="session")
def running_engine() -> type[RunningEngine]:
    """The class, for who makes executors in another way."""
    return RunningEngine


@pytest.fixture
def start_engine() -> Iterator[Callable[..., RunningEngine]]:
    """Starts engines that are closed in the end; `kind` is the executor, `blocks` sets the size of the cache."""
    engines: list[EngineCore] = []

    def start(
        folder: Path, *, kind: str = USUAL_EXECUTOR, blocks: int = 64, block_size: int = 4, **options: Any
    ) -> RunningEngine:
        spec = read_spec(folder)
        block_bytes = 8 * spec.layer_count * block_size * spec.kv_head_count * spec.head_size
        chosen = EngineOptions(block_size=block_size, cache_bytes=blocks * block_bytes, **options)
        engines.append(EngineCore(EXECUTORS[kind](spec, load_weights(folder, spec), chosen), chosen))
        return RunningEngine(engines[-1])

    yield start
    for engine in engines:
        engine.close()
