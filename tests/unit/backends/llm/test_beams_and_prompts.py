"""Beams and probabilities of prompts, as requests ask for them and as clients get them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trireme.backends.llm.llm_request import LlmRequest
from trireme.llm import Engine, SamplingError

Read = Callable[..., LlmRequest]


@pytest.mark.parametrize(
    ("options", "beams", "choices"),
    [
        ({}, 0, 1),
        ({"num_beams": 1}, 0, 1),
        ({"num_beams": 4}, 4, 1),
        ({"num_beams": 4, "n": 2}, 4, 2),
        ({"beam_width": 3}, 3, 3),
        ({"beam_width": 3, "n": 1}, 3, 1),
        ({"use_beam_search": True, "n": 3}, 3, 3),
        ({"use_beam_search": True, "best_of": 5, "n": 2}, 5, 2),
        ({"use_beam_search": True}, 1, 1),
        ({"use_beam_search": False, "best_of": 2, "n": 2}, 0, 2),
    ],
)
def test_beams_are_asked_for_as_in_other_programs(
    read: Read, options: dict[str, Any], beams: int, choices: int
) -> None:
    params = read(text="once", **options).params
    assert (params.beams, params.choices) == (beams, choices)


def test_options_of_beams_reach_the_engine(read: Read) -> None:
    params = read(
        text="once", num_beams=2, length_penalty=0.5, early_stopping="never", beam_search_diversity_rate=-1
    ).params
    assert (params.length_penalty, params.early_stopping, params.diversity_rate) == (0.5, None, -1.0)
    assert read(text="once", early_stopping=True).params.early_stopping is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 0}, "'num_beams' must be at least 1"),
        ({"num_beams": 2, "n": 3}, "'n' must be at most the number of beams, 2"),
        ({"num_beams": 2, "length_penalty": 1e9}, "'length_penalty' must be within 100 of 0"),
        ({"num_beams": 2, "guided_regex": "a+"}, "'num_beams' must be left out where the text has to follow a grammar"),
        ({"prompt_logprobs": 21}, "'prompt_logprobs' must be between 0 and 20"),
    ],
)
def test_what_cannot_be_followed_is_refused(read: Read, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        read(text="once", **options)


@pytest.mark.parametrize("is_stream", [False, True])
def test_beams_come_with_their_scores(answer: Any, is_stream: bool) -> None:
    found = answer(text="Once upon", stream=is_stream, num_beams=3, n=2, max_tokens=6)
    texts = [text for one in found for text in one["text_output"]]
    scores = [score for one in found for score in one["score"]]
    assert len(set(texts)) == len(scores) == 2
    assert 0 > scores[0] >= scores[1]


def test_probabilities_of_the_prompt_are_told_by_token(answer: Any, engine: Engine) -> None:
    (found,) = answer(text="Once upon a time", prompt_logprobs=2, max_tokens=2)
    (text,) = found["prompt_logprobs"]
    entries = json.loads(text)
    tokens = engine.tokenizer.encode("Once upon a time")
    assert entries[0] is None
    assert len(entries) == len(tokens)
    for token, entry in zip(tokens[1:], entries[1:], strict=True):
        own = entry[str(token)]
        assert own["decoded_token"] == engine.tokenizer.token_text(token)
        assert own["logprob"] <= 0
        assert len(entry) == (2 if own["rank"] <= 2 else 3)


def with_probabilities(llm_request: LlmRequest) -> LlmRequest:
    """As a client asks that names its outputs."""
    params = replace(llm_request.params, prompt_logprobs=1)
    return replace(llm_request, params=params, outputs=frozenset({"text_output", "logprobs", "usage", "finish_reason"}))


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_echoed_prompt_has_its_probabilities(fulfil: Any, read: Read, is_stream: bool) -> None:
    llm_request = read(text="Once upon a time", stream=is_stream, echo=True, logprobs=1, max_tokens=2)
    found = fulfil(with_probabilities(llm_request))
    entries = [entry for one in found for text in one.get("logprobs", ()) for entry in json.loads(text)["content"]]
    assert "".join(text for one in found for text in one["text_output"]).startswith("Once upon a time")
    assert len(entries) == len(llm_request.tokens) + 2
    assert entries[0]["logprob"] is None
    assert all(entry["logprob"] <= 0 for entry in entries[1:])


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_alone_can_be_looked_at(fulfil: Any, read: Read, is_stream: bool) -> None:
    llm_request = read(text="Once upon a time", stream=is_stream, echo=True, logprobs=1, max_tokens=0)
    (found,) = fulfil(with_probabilities(llm_request))
    assert found["text_output"] == ["Once upon a time"]
    assert found["finish_reason"] == ["length"]
    assert json.loads(found["usage"][0])["completion_tokens"] == 0
    assert len(json.loads(found["logprobs"][0])["content"]) == len(llm_request.tokens)
