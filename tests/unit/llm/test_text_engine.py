"""Requests as texts: what is told of each when it ends, whatever ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trireme.llm import Engine, EngineBusyError, EngineOptions, FinishReason, SamplingParams
from trireme.llm.generation import TextOutput

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
