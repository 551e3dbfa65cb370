"""Steps begin before it is known what tokens are chosen by, and the texts are those of one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_language_models import TinyModel

from trireme.llm.request import FinishReason, SequenceOutput
from trireme.llm.sampling_params import SamplingParams

torch = pytest.importorskip("torch")
HAS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
KINDS = ["ahead", pytest.param("cuda", marks=HAS_GPU)]
ENDS_AT = 40


class Counting:
    """A grammar of tokens that each lie a third of them apart from the last one, and its state; ends behind some."""

    cost_s = later_cost_s = advance_s = 0.0
    error = ""

    def __init__(self, last: int = 0) -> None:
        self._last = last
        self._count = 0

    def start(self) -> Counting:
        return Counting(self._last)

    @property
    def is_finished(self) -> bool:
        return self._count >= ENDS_AT

    def allowed(self, vocab_size: int) -> Any:
        return np.packbits(np.arange(vocab_size) % 3 == (self._last + 1) % 3, bitorder="little")

    def advance(self, token: int) -> None:
        assert token % 3 == (self._last + 1) % 3
        self._last = token
        self._count += 1


ASKED = [
    {"grammar": Counting(), "temperature": 1.0, "seed": 3},
    {"repetition_penalty": 1.4},
    {"grammar": Counting(1)},
    {"frequency_penalty": 0.7, "presence_penalty": 0.3, "temperature": 0.8, "seed": 5},
    {"top_p": 0.9, "top_p_decay": 0.9, "top_p_min": 0.2, "temperature": 1.0, "seed": 9},
    {"min_tokens": 30, "bad_words": ((4,), (7, 8)), "temperature": 1.0, "seed": 2},
    {},
    {"temperature": 1.0, "seed": 1, "logprobs": 2},
    {"beams": 3},
]
"""What requests ask for, one each."""


def written(start_engine: Callable[..., Any], folder: Path, kind: str, blocks: int) -> tuple[list[Any], Any]:
    engine = start_engine(folder, kind=kind, blocks=blocks, max_sequences=6)
    prompts = [[5 + number, 9, 3] for number in range(2 * len(ASKED))]
    params = [SamplingParams(max_tokens=30 + 2 * number, **asked) for number, asked in enumerate(2 * ASKED)]
    answers: list[list[SequenceOutput]] = engine.answers(prompts, params)
    assert [one[-1].error for one in answers] == [""] * len(prompts)
    told = [([token for piece in one for token in piece.token_ids], one[-1].finish_reason) for one in answers]
    return told, engine.core


@pytest.mark.parametrize("blocks", [400, 48])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_those_of_an_executor_that_waits_for_each_step(
    tiny_model: Callable[[str], TinyModel], start_engine: Callable[..., Any], kind: str, blocks: int
) -> None:
    folder = tiny_model("llama").folder
    wanted, _ = written(start_engine, folder, "numpy", 400)
    found, core = written(start_engine, folder, kind, blocks)
    assert found == wanted
    assert (core.stats().preemptions > 0) == (blocks == 48)
    if kind == "ahead":
        assert core.executor.later_count > 60
    ended = [(len(tokens), reason) for tokens, reason in found]
    assert (ENDS_AT, FinishReason.STOP) in ended  # with a token more under way, which nobody is told of


@pytest.mark.parametrize("kind", KINDS)
def test_a_grammar_that_fails_under_way_ends_its_own_sequence(
    tiny_model: Callable[[str], TinyModel], start_engine: Callable[..., Any], kind: str
) -> None:
    class Failing(Counting):
        def start(self) -> Failing:
            return Failing()

        def allowed(self, vocab_size: int) -> Any:
            if self._count == 5:
                raise ZeroDivisionError("no mask today")
            return super().allowed(vocab_size)

    engine = start_engine(tiny_model("llama").folder, kind=kind)
    params = [SamplingParams(max_tokens=12, grammar=grammar) for grammar in (Failing(), Counting())]
    failed, other = engine.answers([[5, 9, 3]] * 2, params)
    assert "ZeroDivisionError: no mask today" in failed[-1].error
    assert sum(len(one.token_ids) for one in failed) == 5
    assert other[-1].finish_reason is FinishReason.LENGTH
    assert sum(len(one.token_ids) for one in other) == 12
