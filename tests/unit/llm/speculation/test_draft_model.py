"""The smaller model writes what it would write behind the text, however its last guesses fared."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tiny_language_models import VOCAB

from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.speculation.draft_model import ModelDrafter


def sequence(tokens: list[int]) -> Sequence:
    return Sequence(1, list(tokens), len(tokens), SamplingParams(), lambda output: None, BlockKeys(4), 60)


@pytest.fixture(params=["numpy", "torch", "ahead"])
def drafter(request: Any, tiny_model: Any, executor_of: Any) -> ModelDrafter:
    folder = tiny_model("llama").folder
    return ModelDrafter(executor_of(request.param, folder, blocks=24, max_sequences=3, max_step_tokens=16), VOCAB)


def test_wrong_guesses_leave_no_trace(drafter: ModelDrafter, tiny_model: Any) -> None:
    model, chance = tiny_model("llama"), random.Random(0)
    one = sequence([5, 9, 17])
    for _ in range(8):
        count = chance.randrange(1, 5)
        (found,) = drafter.draft([(one, count)])
        assert list(found) == model.continuation(one.tokens, count)
        others = [chance.randrange(3, VOCAB) for _ in range(chance.randrange(1, 4))]  # some without guesses
        one.tokens += [*found[: chance.randrange(count + 1)], *others]
    drafter.forget(one)
    assert drafter._pool.free_count == drafter._pool.block_count


def test_several_are_followed_and_the_longest_unused_gives_way(drafter: ModelDrafter, tiny_model: Any) -> None:
    model, chance = tiny_model("llama"), random.Random(1)
    everybody = [sequence([chance.randrange(3, VOCAB) for _ in range(6)]) for _ in range(6)]
    for _ in range(20):
        asking = chance.sample(everybody, chance.randrange(1, 4))
        for one, found in zip(asking, drafter.draft([(one, 3) for one in asking]), strict=True):
            assert list(found) == model.continuation(one.tokens, 3)[: len(found)]
            if len(one.tokens) < 24:
                one.tokens.append(chance.randrange(3, VOCAB))
        assert len(drafter._followers) <= 3
    for one in everybody:
        drafter.forget(one)
    assert drafter._pool.free_count == drafter._pool.block_count
    assert sorted(drafter._free_slots) == [0, 1, 2]


def test_a_long_prompt_is_caught_up_with_in_several_turns(drafter: ModelDrafter, tiny_model: Any) -> None:
    model, one = tiny_model("llama"), sequence(list(range(3, 43)))
    turns = [drafter.draft([(one, 2)])[0] for _ in range(3)]
    assert turns[:2] == [(), ()]
    assert list(turns[2]) == model.continuation(one.tokens, 2)


def test_nothing_is_written_beyond_the_models_length_or_its_cache(drafter: ModelDrafter) -> None:
    assert drafter.draft([(sequence(list(range(3, 67))), 4)]) == [()]
    crowd = [(sequence([number, *range(3, 45)]), 4) for number in (5, 6, 7)]  # 11 or 12 blocks each, and there are 24
    assert sum(bool(one) for _ in range(3) for one in drafter.draft(crowd)) <= 2
