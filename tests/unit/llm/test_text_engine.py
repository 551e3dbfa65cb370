"""Requests as texts: what is told of each when it ends, whatever ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trireme.llm import Engine, EngineOptions, FinishReason, SamplingParams

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
