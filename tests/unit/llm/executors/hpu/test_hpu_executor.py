"""Steps on a Gaudi: a few shapes, each recorded once and played with other numbers, and PyTorch's tokens."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_language_models import VOCAB, TinyModel

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.hpu.executor import HpuExecutor
from trireme.llm.executors.hpu.software import GaudiSoftware
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions, SpeculationMode, WarmUpMode
from trireme.llm.request import FinishReason
from trireme.llm.sampling_params import SamplingParams

COUNT = 6
PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in (3, 9, 14, 22)]
NAMES = ["llama", "gemma 2", "falcon rw", "phi 3, long", "opt 350m", "qwen 2 moe"]
Event = tuple[Any, ...]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """What Gaudi's software is asked for, in lazy mode."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "packages"))
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    yield importlib.import_module("habana_frameworks.torch").events
    for name in [name for name in sys.modules if name.partition(".")[0] == "habana_frameworks"]:
        del sys.modules[name]


@pytest.fixture
def start_hpu(events: list[Event], running_engine: type) -> Iterator[Callable[..., Any]]:
    engines: list[EngineCore] = []

    def start(folder: Path, speculation: SpeculationMode = SpeculationMode.OFF, **options: Any) -> Any:
        executor = make(folder, **options)
        engines.append(EngineCore(executor, EngineOptions(warm_up=WarmUpMode.OFF, speculation=speculation)))
        return running_engine(engines[-1])

    yield start
    for engine in engines:
        engine.close()


def warm(executor: HpuExecutor) -> None:
    for kind in executor.warm_ups():
        kind.run()


def make(folder: Path, **options: Any) -> HpuExecutor:
    spec = read_spec(folder)
    chosen = EngineOptions(**{"block_size": 4, "max_sequences": 8, "cache_bytes": 2**20, **options})
    tensors = host_tensors(load_weights(folder, spec))
    return HpuExecutor(spec, tensors, chosen, GaudiSoftware(), torch.float32, torch.device("cpu"))


def recorded(events: list[Event]) -> list[Event]:
    return [event[1] for event in events if event[0] == "record"]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_transformers_and_every_shape_is_recorded_once(
    name: str, tiny_model: Callable[[str], TinyModel], start_hpu: Any, events: list[Event]
) -> None:
    model = tiny_model(name)
    engine = start_hpu(model.folder, max_step_tokens=20)
    wanted = [model.continuation(prompt, COUNT) for prompt in PROMPTS]
    assert engine.tokens(PROMPTS, COUNT) == wanted
    assert engine.tokens(PROMPTS[2:3], COUNT) == wanted[2:3]
    assert max(Counter(recorded(events)).values()) == 1
    assert sum(event[0] == "play" for event in events) > len(recorded(events))


def test_shapes_are_those_of_the_buckets(tiny_model: Any, start_hpu: Any, events: list[Event]) -> None:
    engine = start_hpu(tiny_model("llama").folder, max_step_tokens=50)
    engine.tokens(PROMPTS, COUNT)
    for kind, inputs, blocks, rows in recorded(events):
        if kind == "DecodeStep":
            assert inputs == (4, blocks[0])
            assert (blocks[0], blocks[1]) in {(b, w) for b in (1, 2, 4, 8) for w in (4, 8, 16)}
            assert rows == (blocks[0],)
        else:
            assert inputs[1] in (32, 50)
            assert blocks[0] in (4, 8, 16)
            assert rows == (1,)


def test_a_step_ends_before_and_after_every_graph(tiny_model: Any, start_hpu: Any, events: list[Event]) -> None:
    engine = start_hpu(tiny_model("llama").folder, max_step_tokens=20)
    engine.tokens(PROMPTS, COUNT)
    kinds = [event[0] for event in events]
    assert kinds[0::3] == kinds[2::3] == ["mark_step"] * (len(kinds) // 3)
    assert set(kinds[1::3]) == {"record", "play"}


def test_nothing_is_recorded_any_more_after_the_warm_up(
    tiny_model: Any, events: list[Event], running_engine: Any
) -> None:
    model = tiny_model("qwen 3")
    executor = make(model.folder, max_step_tokens=40, max_sequences=4, max_length=32)
    for kind in executor.warm_ups():
        kind.run()
    made = len(recorded(events))
    core = EngineCore(executor, EngineOptions(warm_up=WarmUpMode.OFF))
    try:
        found = running_engine(core).tokens(PROMPTS, COUNT)
    finally:
        core.close()
    assert found == [model.continuation(prompt, COUNT) for prompt in PROMPTS]
    assert len(recorded(events)) == made == 8


def test_too_few_blocks_and_known_prefixes(tiny_model: Any, start_hpu: Any) -> None:
    model = tiny_model("mistral")
    spec = read_spec(model.folder)
    block_bytes = 8 * spec.layer_count * 4 * spec.kv_head_count * spec.head_size
    engine = start_hpu(model.folder, max_step_tokens=20, cache_bytes=10 * block_bytes)
    wanted = [model.continuation(prompt, COUNT) for prompt in PROMPTS]
    assert engine.tokens(PROMPTS, COUNT) == wanted
    assert engine.core.stats().preemptions > 0
    (outputs,) = engine.answers([PROMPTS[-1]], [SamplingParams(max_tokens=COUNT)])
    assert [token for one in outputs for token in one.token_ids] == wanted[-1]
    (outputs,) = engine.answers([PROMPTS[-1]], [SamplingParams(max_tokens=COUNT)])
    assert [token for one in outputs for token in one.token_ids] == wanted[-1]
    assert outputs[-1].cached_tokens == 20


def test_beams_are_those_of_transformers(tiny_model: Any, start_hpu: Any) -> None:
    model = tiny_model("llama")
    engine = start_hpu(model.folder)
    assert engine.beams(PROMPTS[1], COUNT, 3) == model.beams(PROMPTS[1], COUNT, 3)


def test_what_is_not_greedy_is_what_the_executor_in_pytorch_gives(
    tiny_model: Any, start_hpu: Any, start_engine: Any
) -> None:
    folder = tiny_model("llama").folder
    params = [
        SamplingParams(max_tokens=COUNT, temperature=0.8, seed=1, top_p=0.9),
        SamplingParams(max_tokens=COUNT, temperature=1.2, seed=2, top_k=20, logprobs=3),
        SamplingParams(max_tokens=COUNT),
        SamplingParams(max_tokens=COUNT, repetition_penalty=1.5, logprobs=0),
    ]
    found = start_hpu(folder, max_step_tokens=20).answers(PROMPTS, params)
    wanted = start_engine(folder, kind="torch", max_step_tokens=20).answers(PROMPTS, params)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [output.token_ids for output in ours] == [output.token_ids for output in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert [place.rank for place in one.logprobs] == [place.rank for place in other.logprobs]


def test_a_sequence_without_numbers_is_ended_and_others_go_on(model_without_numbers: Path, start_hpu: Any) -> None:
    spec = read_spec(model_without_numbers)
    engine = start_hpu(
        model_without_numbers, cache_bytes=4 * 8 * spec.layer_count * 4 * spec.kv_head_count * spec.head_size
    )
    wanted = engine.tokens([[6, 7]], 4)
    for prompt in ([6, 5], [5] * 14):  # all blocks
        broken, beside = engine.answers([prompt, [6, 7]], [SamplingParams(max_tokens=4)] * 2)
        assert [output.finish_reason for output in broken] == [FinishReason.ERROR]
        assert "no numbers any more" in broken[0].error
        assert [token for output in beside for token in output.token_ids] == wanted[0]


def test_without_graphs_steps_are_plain_calls(tiny_model: Any, start_hpu: Any, events: list[Event]) -> None:
    model = tiny_model("llama")
    engine = start_hpu(model.folder, has_graphs=False)
    assert engine.tokens(PROMPTS[:1], COUNT) == [model.continuation(PROMPTS[0], COUNT)]
    assert {event[0] for event in events} == {"mark_step"}


def test_the_watchdog_knows_of_graphs_that_are_being_recorded(
    tiny_model: Any, start_hpu: Any, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    engine = start_hpu(tiny_model("llama").folder)
    executor = engine.core.executor
    finish = executor._software.finish
    monkeypatch.setattr(executor._software, "finish", lambda: (seen.append(executor.is_preparing), finish()))
    engine.tokens(PROMPTS[:1], COUNT)
    assert len(seen) == 2 * sum(event[0] in ("record", "play") for event in events)
    assert sum(seen) == 2 * len(recorded(events))
    assert not executor.is_preparing


def test_eager_mode_compiles_and_has_nothing_to_finish(
    events: list[Event], tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    asked = []
    monkeypatch.setattr(torch, "compile", lambda module, **options: asked.append(options) or module)
    executor = make(tiny_model("llama").folder)
    for kind in executor.warm_ups():
        kind.run()
    assert asked == [{"backend": "hpu_backend", "dynamic": False}] * 2
    assert events == []


def test_a_machine_without_the_software_is_told_what_to_install(tiny_model: Any) -> None:
    with pytest.raises(ExecutorError, match="install habana-torch-plugin"):
        load_executor(tiny_model("llama").folder, EngineOptions(), "hpu:0")


def test_guesses_are_verified_in_one_step(tiny_model: Any, start_hpu: Any) -> None:
    model = tiny_model("llama")
    engine = start_hpu(model.folder, speculation=SpeculationMode.NGRAM)
    prompts = [prompt[:4] * 4 for prompt in PROMPTS[1:]]
    assert engine.tokens(prompts, 30) == [model.continuation(prompt, 30) for prompt in prompts]
    assert engine.core.stats().draft_tokens > 0
