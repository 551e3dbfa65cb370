"""Beam search finds what transformers finds, shares blocks, and leaves none behind."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tiny_language_models import TinyModel

from trireme.llm.request import FinishReason, SequenceOutput
from trireme.llm.sampling_params import SamplingError, SamplingParams

PROMPTS = [[5, 9, 17, 3], [7], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21], [40, 2, 9, 30, 31]]


def expected(
    model: TinyModel, prompt: Sequence[int], count: int, beams: int, eos: int | list[int] | None = 2, **settings: Any
) -> list[tuple[list[int], float]]:
    """The beams of transformers and their scores, the best first."""
    found = model.model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=eos,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    ends = [eos] if isinstance(eos, int) else eos or []
    return [
        (_cut(row.tolist()[len(prompt) :], ends), float(score))
        for row, score in zip(found.sequences, found.sequences_scores, strict=True)
    ]


def _cut(tokens: list[int], ends: Sequence[int]) -> list[int]:
    for place, token in enumerate(tokens):
        if token in ends:
            return tokens[: place + 1]
    return tokens


class Search:
    """A beam search under way."""

    def __init__(self, engine: Any, prompt: Sequence[int], eos: Sequence[int] = (2,), **params: Any) -> None:
        chosen = SamplingParams(choices=params["beams"], **params)
        self._inboxes: list[queue.Queue[SequenceOutput]] = [queue.Queue() for _ in range(chosen.choices)]
        listeners = [inbox.put for inbox in self._inboxes]
        self.number = engine.core.submit(prompt, chosen, *listeners, end_ids=eos)

    def outputs(self) -> list[SequenceOutput]:
        return [inbox.get(timeout=120) for inbox in self._inboxes]

    def check(self, wanted: list[tuple[list[int], float]]) -> None:
        found = self.outputs()
        assert [one.error for one in found] == [""] * len(wanted)
        assert [list(one.token_ids) for one in found] == [tokens for tokens, _ in wanted]
        assert [one.score for one in found] == pytest.approx([score for _, score in wanted], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_beams_and_scores_are_those_of_transformers(tiny_model: Any, start_engine: Any, kind: str, beams: int) -> None:
    model = tiny_model("llama")
    engine = start_engine(model.folder, kind=kind, blocks=200)
    searches = [Search(engine, prompt, beams=beams, max_tokens=12) for prompt in PROMPTS]
    for search, prompt in zip(searches, PROMPTS, strict=True):
        search.check(expected(model, prompt, 12, beams) if beams > 1 else greedy(model, prompt, 12))
    assert engine.core.stats().free_blocks == 200


def greedy(model: TinyModel, prompt: Sequence[int], count: int) -> list[tuple[list[int], float]]:
    found = model.model.generate(
        torch.tensor([list(prompt)]), do_sample=False, max_new_tokens=count, eos_token_id=2, pad_token_id=0,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    tokens = _cut(found.sequences[0].tolist()[len(prompt) :], [2])
    logprobs = [logits[0].log_softmax(-1)[token] for logits, token in zip(found.logits, tokens, strict=False)]
    return [(tokens, float(sum(logprobs)) / len(tokens))]


@pytest.mark.parametrize(
    "settings",
    [
        {"length_penalty": 0.0},
        {"length_penalty": 2.5},
        {"length_penalty": -1.0},
        {"early_stopping": True},
        {"early_stopping": None},
        {"early_stopping": None, "length_penalty": 0.0},
        {"repetition_penalty": 1.7},
        {"min_tokens": 6},
        {"bad_words": ((4, 5), (9,))},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_options_mean_what_they_mean_in_transformers(
    tiny_model: Any, start_engine: Any, kind: str, settings: dict[str, Any]
) -> None:
    model = tiny_model("gpt-2")
    engine = start_engine(model.folder, kind=kind, blocks=200)
    ends = likely_ends(model)
    names = {"min_tokens": "min_new_tokens", "bad_words": "bad_words_ids"}
    theirs = {names.get(name, name): value for name, value in settings.items()}
    if settings.get("early_stopping", True) is None:
        theirs["early_stopping"] = "never"
    if "bad_words" in settings:
        theirs["bad_words_ids"] = [list(word) for word in settings["bad_words"]]
    for prompt in PROMPTS:
        search = Search(engine, prompt, ends, beams=4, max_tokens=14, **settings)
        search.check(expected(model, prompt, 14, 4, ends, **theirs))


def likely_ends(model: TinyModel) -> list[int]:
    """Tokens that the model writes often, so that beams end at different times."""
    written: dict[int, int] = {}
    for prompt in PROMPTS:
        for tokens, _ in expected(model, prompt, 10, 4, None):
            for token in tokens:
                written[token] = written.get(token, 0) + 1
    return sorted(written, key=lambda token: -written[token])[1:4]


@pytest.mark.parametrize("has_prefix_cache", [True, False])
def test_beams_that_are_thrown_out_in_between_find_the_same(
    tiny_model: Any, start_engine: Any, has_prefix_cache: bool
) -> None:
    model = tiny_model("llama")
    engine = start_engine(
        model.folder, blocks=20, max_sequences=12, max_step_tokens=16, has_prefix_cache=has_prefix_cache
    )
    with engine.held():  # all of them are there before the first one runs
        searches = [Search(engine, prompt, beams=4, max_tokens=10) for prompt in PROMPTS]
    plain = [[5, 6, 7], [8, 9]]
    assert engine.tokens(plain, 10) == [model.continuation(prompt, 10) for prompt in plain]
    for search, prompt in zip(searches, PROMPTS, strict=True):
        search.check(expected(model, prompt, 10, 4))
    stats = engine.core.stats()
    assert stats.preemptions > 0
    assert stats.free_blocks == 20
    assert stats.running == stats.waiting == 0


def test_beams_of_a_sequence_that_becomes_long_find_the_same(tiny_model: Any, start_engine: Any) -> None:
    model = tiny_model("phi 3, long")
    engine = start_engine(model.folder, blocks=100)
    prompt = list(range(3, 13))
    found = Search(engine, prompt, beams=3, max_tokens=4)
    found.check(expected(model, prompt, 4, 3))
    long = Search(engine, prompt, beams=3, max_tokens=10)
    assert [one.error for one in long.outputs()] == [""] * 3
    assert engine.core.stats().free_blocks == 100


def test_beams_that_go_on_from_each_other_are_not_told_as_thrown_out(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder, blocks=200)
    outputs = engine.answers([PROMPTS[0]], [SamplingParams(max_tokens=12, beams=4)])[0]
    assert engine.core.stats().preemptions == 0
    assert outputs[-1].times.preemptions == 0


def test_beams_hold_the_prompts_blocks_once(tiny_model: Any, start_engine: Any) -> None:
    model = tiny_model("llama")
    prompt = [3 + place % 40 for place in range(40)]
    engine = start_engine(model.folder, blocks=10 + 4 * 3)  # ten for the prompt, three for the rest of each
    Search(engine, prompt, beams=4, max_tokens=8).check(expected(model, prompt, 8, 4))
    assert engine.core.stats().preemptions == 0


def test_a_search_that_is_cancelled_frees_all_its_blocks(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder, blocks=60)
    chance = random.Random(1)
    for _ in range(20):
        searches = [Search(engine, PROMPTS[0], eos=(), beams=4, max_tokens=30) for _ in range(3)]
        for search in searches:
            if chance.random() < 0.7:
                engine.core.cancel(search.number)
        for search in searches:
            reasons = {one.finish_reason for one in search.outputs()}
            assert reasons <= {FinishReason.CANCELLED} or reasons <= {FinishReason.LENGTH}
    assert engine.core.stats().free_blocks == 60


@pytest.mark.parametrize("end", ["found", "cancelled", "timeout"])
def test_each_choice_hears_of_its_end_also_where_the_listener_of_another_fails(
    tiny_model: Any, start_engine: Any, end: str
) -> None:
    engine = start_engine(tiny_model("llama").folder, blocks=60)
    inbox: queue.Queue[tuple[int, FinishReason | None]] = queue.Queue()

    def listener(choice: int) -> Callable[[SequenceOutput], None]:
        def listen(output: SequenceOutput) -> None:
            inbox.put((choice, output.finish_reason))
            if choice < 2:
                raise ZeroDivisionError("no ear")

        return listen

    params = SamplingParams(beams=3, choices=3, max_tokens=5)
    with engine.held():
        timeout_s = 0.0 if end == "timeout" else None
        number = engine.core.submit(PROMPTS[0], params, *map(listener, range(3)), timeout_s=timeout_s)
        if end == "cancelled":
            engine.core.cancel(number)
    wanted = FinishReason.LENGTH if end == "found" else FinishReason(end)
    assert [inbox.get(timeout=60) for _ in range(3)] == [(choice, wanted) for choice in range(3)]
    assert len(engine.tokens([[5, 6]], 4)[0]) == 4
    assert engine.core.stats().free_blocks == 60


def test_what_a_search_cannot_do_is_refused(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder, blocks=12, max_sequences=8)
    with pytest.raises(SamplingError, match="'num_beams' is 9, but 8 sequences"):
        Search(engine, [5], beams=9)
    with pytest.raises(SamplingError, match="the prompt has 40 tokens, but for 4 beams the cache is too small"):
        Search(engine, [5] * 40, beams=4)
    with pytest.raises(SamplingError, match="'n' must be at most the number of beams, 2, found 3"):
        SamplingParams(beams=2, choices=3)


def test_probabilities_of_beams_tokens_are_told(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)
    for one in Search(engine, PROMPTS[0], eos=(), beams=3, max_tokens=5, logprobs=2).outputs():
        assert len(one.logprobs) == 5
        assert one.score == pytest.approx(sum(entry.logprob for entry in one.logprobs) / 5, rel=1e-5)
        assert all(len(entry.top) == 2 and entry.rank >= 1 for entry in one.logprobs)


def test_a_rate_of_diversity_makes_beams_differ_earlier(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)

    def first_tokens(rate: float) -> set[int]:
        outputs = Search(engine, PROMPTS[0], eos=(), beams=4, max_tokens=6, diversity_rate=rate).outputs()
        return {one.token_ids[-1] for one in outputs} | {len({one.token_ids[:2] for one in outputs}) * 1000}

    assert first_tokens(0.0) != first_tokens(-5.0)
