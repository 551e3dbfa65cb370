"""What a sequence has written is counted as it grows, and comes to what counting all of it comes to."""

from __future__ import annotations

import random

import numpy as np
import pytest

from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling.numpy_sampler import forbidden_tokens
from trireme.llm.sampling.token_history import TokenHistory
from trireme.llm.sampling_params import SamplingError, SamplingParams


class CountedTokens(list[int]):
    """Counts how many tokens are read."""

    read = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        found = super().__getitem__(key)
        self.read += len(found) if isinstance(key, slice) else 1
        return found

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.read += len(self)
        return super().__iter__()


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    tokens = [chance.randrange(30) for _ in range(12)]
    history = TokenHistory(SamplingParams(), 7)
    for _ in range(40):
        ids, counts = np.unique(np.array(tokens[7:], np.int64), return_counts=True)
        found, often = history.written(tokens)
        assert sorted(zip(found.tolist(), often.tolist(), strict=True)) == list(
            zip(ids.tolist(), counts.tolist(), strict=True)
        )
        assert sorted(history.seen(tokens).tolist()) == sorted(set(tokens))
        tokens += [chance.randrange(30) for _ in range(chance.randrange(3))]


@pytest.mark.parametrize("seed", range(5))
def test_words_are_completed_by_what_comparing_all_of_them_finds(seed: int) -> None:
    chance = random.Random(seed)
    words = tuple(tuple(chance.randrange(3) for _ in range(chance.randrange(5))) for _ in range(60))
    for size in range(1, 10):
        tokens = [chance.randrange(3) for _ in range(size)]
        one = Sequence(1, tokens, 1, SamplingParams(bad_words=words), lambda output: None, BlockKeys(4), 100)
        wanted = {word[-1] for word in words if word and [*tokens, word[-1]][-len(word) :] == list(word)}
        assert set(forbidden_tokens(one)) == wanted


def test_a_step_reads_the_new_tokens_alone() -> None:
    params = SamplingParams(repetition_penalty=1.1, presence_penalty=0.5, bad_words=((1, 2), (3, 4, 5)))
    tokens = CountedTokens(range(5000))
    history = TokenHistory(params, 4000)
    history.seen(tokens), history.written(tokens)
    tokens.read = 0
    for token in range(20):
        tokens.append(token)
        history.seen(tokens), history.written(tokens), list(history.completing(tokens))
    assert tokens.read < 20 * 10


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"bad_words": ((1,),) * 1025}, "'bad_words' must be at most 1024 words, found 1025"),
        ({"logit_bias": dict.fromkeys(range(4097), 1.0)}, "'logit_bias' must be at most 4096 tokens, found 4097"),
    ],
)
def test_lists_are_bounded(params: dict[str, object], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        SamplingParams(**params)  # type: ignore[arg-type]


def test_top_p_decays_with_each_token_to_its_least_and_begins_again_at_a_token() -> None:
    params = SamplingParams(temperature=1.0, top_p=0.8, top_p_decay=0.5, top_p_min=0.15, top_p_reset_id=7)
    history, tokens, found = TokenHistory(params, 2), [7, 7], []
    for token in (3, 4, 5, 7, 3):
        found.append(history.top_p(tokens))
        tokens.append(token)
    found.append(history.top_p(tokens))
    assert found == [0.8, 0.4, 0.2, 0.15, 0.8, 0.4]
    assert TokenHistory(params, 2).top_p(tokens) == 0.4  # all at once, as after a sequence was interrupted
