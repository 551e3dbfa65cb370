"""Requests as texts: what is told of each when it ends, whatever ends it."""

from __future__ import annotations

import math
import queue
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.llm import Engine, EngineBusyError, EngineOptions, FinishReason, SamplingParams
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import ExecutorError
from trireme.llm.generation import TextOutput
from trireme.llm.options import SpeculationMode
from trireme.llm.sampling_params import MAX_SEED, MIN_SEED, SamplingError
from trireme.llm.text_engine import GenerationError

SHIPPED = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe" / "1"
PROMPT = list(range(40, 80))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load(SHIPPED, device="numpy", options=EngineOptions(block_size=4)) as engine:
        yield engine


def test_a_request_that_a_stop_string_ends_tells_its_times_and_what_was_cached(engine: Engine) -> None:
    (plain,) = engine.generate(PROMPT, SamplingParams(max_tokens=12))
    assert len(plain.text) > 4
    pieces = list(engine.stream(PROMPT, SamplingParams(max_tokens=12, stop=(plain.text[3:5],))))
    assert [piece.times is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    last = pieces[-1]
    assert last.finish_reason is FinishReason.STOP
    assert last.usage is not None
    assert last.usage.cached_tokens == 36
    assert last.usage.completion_tokens < 12
    assert last.times is not None
    assert 0 < last.times.arrival <= last.times.started <= last.times.first_token <= last.times.last_token


def test_choices_of_one_request_share_its_prompt_and_part_behind_it(engine: Engine) -> None:
    params = SamplingParams(max_tokens=8, temperature=1.5, seed=1, choices=3)
    together = [answer.token_ids for answer in engine.generate(PROMPT, params)]
    alone = [SamplingParams(max_tokens=8, temperature=1.5, seed=1 + index) for index in range(3)]
    assert together == [engine.generate(PROMPT, one)[0].token_ids for one in alone]
    assert len(set(together)) == 3


def test_choices_behind_the_last_seed_get_the_first_ones(engine: Engine) -> None:
    params = SamplingParams(max_tokens=8, temperature=1.5, seed=MAX_SEED, choices=2)
    together = [answer.token_ids for answer in engine.generate(PROMPT, params)]
    alone = [SamplingParams(max_tokens=8, temperature=1.5, seed=seed) for seed in (MAX_SEED, MIN_SEED)]
    assert together == [engine.generate(PROMPT, one)[0].token_ids for one in alone]


def test_a_request_with_too_many_choices_leaves_nothing_behind() -> None:
    options, heard = EngineOptions(max_sequences=1, max_waiting=2), list[TextOutput]()
    with Engine.load(SHIPPED, device="numpy", options=options) as engine:
        with pytest.raises(EngineBusyError, match="max_waiting"):
            engine.submit(PROMPT, SamplingParams(max_tokens=200, choices=100), heard.append)
        assert generated_once_there_is_room(engine)
        assert engine.core.stats().generation_tokens < 150
        assert heard == []


def generated_once_there_is_room(engine: Engine) -> bool:
    for _ in range(1000):
        try:
            return len(engine.generate(PROMPT, SamplingParams(max_tokens=3))) == 1
        except EngineBusyError:
            time.sleep(0.01)
    return False


def test_token_ids_of_numpy_are_token_ids(engine: Engine) -> None:
    params = SamplingParams(max_tokens=4)
    (wanted,) = engine.generate([5, 6, 7], params)
    (found,) = engine.generate(np.array([5, 6, 7]), params)  # type: ignore[arg-type]
    assert found.token_ids == wanted.token_ids
    both = engine.generate(np.array([[5, 6, 7]] * 2), params)  # type: ignore[arg-type]
    assert [one.token_ids for one in both] == [wanted.token_ids] * 2


@pytest.mark.parametrize("prompt", [[5, 6.5, 7], [{"role": "user", "content": "Hello"}, "Hi"], [5, "six"]])
def test_nothing_of_a_prompt_is_left_out(engine: Engine, prompt: Any) -> None:
    with pytest.raises(SamplingError, match="a prompt is a text, a list of token ids or a list of messages, found"):
        engine.generate([prompt], SamplingParams(max_tokens=4))


def test_an_interrupt_ends_what_is_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(queue.SimpleQueue[int]):
        def get(self, block: bool = True, timeout: float | None = None) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr("trireme.llm.text_engine.queue.SimpleQueue", Interrupted)
    before = engine.core.stats().finished.get("cancelled", 0)
    with pytest.raises(KeyboardInterrupt):
        engine.generate("Once upon a time", SamplingParams(max_tokens=200, ignores_eos=True))
    for _ in range(1000):
        if engine.core.stats().finished.get("cancelled", 0) > before:
            break
        time.sleep(0.01)
    assert engine.core.stats().finished.get("cancelled", 0) == before + 1


@pytest.mark.parametrize(
    ("step_timeout_s", "timeout_s", "limit"),
    [(0.3, None, "0.3 s (step_timeout_s)"), (60.0, 0.2, "1.2 s (timeout_s)")],
)
def test_a_step_that_hangs_is_told_to_who_waits(step_timeout_s: float, timeout_s: float | None, limit: str) -> None:
    hangs, released = threading.Event(), threading.Event()
    with Engine.load(SHIPPED, device="numpy", options=EngineOptions(step_timeout_s=step_timeout_s)) as engine:
        submit = engine.core.executor.submit

        def hang(plan: Any) -> Any:
            hangs.set()
            released.wait(60)
            return submit(plan)

        engine.core.executor.submit = hang  # type: ignore[method-assign]
        try:
            with pytest.raises(GenerationError, match=re.escape(f"a step has not ended within {limit}")):
                engine.generate(PROMPT, SamplingParams(max_tokens=3), timeout_s=timeout_s)
            with pytest.raises(GenerationError, match=re.escape(f"a step has not ended within {limit}")):
                list(engine.stream(PROMPT, SamplingParams(max_tokens=3), timeout_s=timeout_s))
            assert hangs.is_set()
        finally:
            released.set()


def test_an_engine_that_cannot_be_started_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[NumpyExecutor] = []
    monkeypatch.setattr(NumpyExecutor, "close", lambda executor: closed.append(executor))
    options = EngineOptions(cache_bytes=2**20, speculation=SpeculationMode.DRAFT)
    with pytest.raises(ExecutorError, match="needs one: give its folder"):
        Engine.load(SHIPPED, device="numpy", options=options)
    assert len(closed) == 1


def test_a_stop_string_alone_is_one_of_them(engine: Engine) -> None:
    (plain,) = engine.generate(PROMPT, SamplingParams(max_tokens=12))
    stop = plain.text[3:7]
    assert len(stop) == 4
    assert SamplingParams(stop=stop) == SamplingParams(stop=(stop,))
    (stopped,) = engine.generate(PROMPT, SamplingParams(max_tokens=12, stop=stop))
    assert stopped.text == plain.text[: plain.text.index(stop)]


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"max_tokens": "5"}, "'max_tokens' must be a whole number, found '5'"),
        ({"max_tokens": True}, "'max_tokens' must be a whole number, found True"),
        ({"max_tokens": 5.5}, "'max_tokens' must be a whole number, found 5.5"),
        ({"seed": "x"}, "'seed' must be a whole number, found 'x'"),
        ({"seed": 2**64}, "'seed' must be between -9223372036854775808 and 18446744073709551615"),
        ({"top_k": "3"}, "'top_k' must be a whole number, found '3'"),
        ({"min_tokens": "3"}, "'min_tokens' must be a whole number, found '3'"),
        ({"choices": 1.5}, "'n' must be a whole number, found 1.5"),
        ({"logprobs": True}, "'logprobs' must be a whole number, found True"),
        ({"beams": "2"}, "'num_beams' must be a whole number, found '2'"),
        ({"stop": 5}, "'stop' must be a string, or several, found 5"),
        ({"stop": (5,)}, "'stop' must be a string, or several, found (5,)"),
        ({"logit_bias": {5: math.inf}}, "'logit_bias' must be finite numbers, found inf"),
        ({"logit_bias": {5: math.nan}}, "'logit_bias' must be finite numbers, found nan"),
    ],
)
def test_parameters_of_another_kind_are_refused_by_name(params: Any, sentence: str) -> None:
    with pytest.raises(SamplingError, match=re.escape(sentence)):
        SamplingParams(**params)


@pytest.mark.parametrize(
    ("prompt", "found"), [(None, "NoneType"), (3, "int"), (b"text", "bytes"), ({"role": "u"}, "dict")]
)
def test_what_is_no_prompt_is_told(engine: Engine, prompt: Any, found: str) -> None:
    sentence = f"a prompt is a text, a list of token ids or a list of messages, found {found}"
    for ask in (engine.generate, engine.encode, lambda one: next(engine.stream(one))):
        with pytest.raises(SamplingError, match=sentence):
            ask(prompt)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=f"there is no folder {tmp_path}/gone; give the folder that has"):
        Engine.load(tmp_path / "gone")


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (EngineOptions(cache_tokens=32), "cache_tokens"),
        (EngineOptions(cache_tokens=10**9, cache_bytes=10**6), "cache_bytes"),
    ],
)
def test_a_prompt_without_room_names_what_keeps_the_cache_small(options: EngineOptions, setting: str) -> None:
    with Engine.load(SHIPPED, device="numpy", options=options) as engine:
        prompt = [5] * (engine.core.executor.limits.block_count * 16)
        with pytest.raises(SamplingError, match=rf"enlarge the cache \({setting}\)"):
            engine.generate(prompt)
