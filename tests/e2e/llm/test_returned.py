"""What the generate endpoints tell beside the text, with the flags of Triton's vLLM backend."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_server import RunningServer

PROMPT = {"text_input": "Once upon a time", "max_tokens": 6}
FLAGS = (
    "return_finish_reason", "return_cumulative_logprob", "return_logprobs", "return_num_input_tokens",
    "return_num_output_tokens",
)  # fmt: skip
OUTPUTS = {"finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens"}


def generate(server: RunningServer, **members: Any) -> dict[str, Any]:
    status, _, text = server.ask("POST", "/v2/models/scribe/generate", {**PROMPT, **members})
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def entries_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The token's own entry in front, for each token."""
    return [next(iter(entry.values())) for entry in json.loads(answer["logprobs"])]


@pytest.fixture(scope="module")
def usage(scribe: RunningServer) -> dict[str, int]:
    body = {"model": "scribe", "prompt": PROMPT["text_input"], "max_tokens": 6, "temperature": 0}
    found: dict[str, int] = json.loads(scribe.ask("POST", "/v1/completions", body)[2])["usage"]
    return found


def test_every_flag_adds_its_output(scribe: RunningServer, usage: dict[str, int]) -> None:
    plain = generate(scribe)
    assert not OUTPUTS & plain.keys()
    told = generate(scribe, **dict.fromkeys(FLAGS, True))
    assert told["text_output"] == plain["text_output"]
    assert told["finish_reason"] == "length"
    assert (told["num_input_tokens"], told["num_output_tokens"]) == (usage["prompt_tokens"], 6)
    entries = entries_of(told)
    assert "".join(entry["decoded_token"] for entry in entries) == told["text_output"]
    assert [entry["rank"] for entry in entries] == [1] * 6
    assert told["cumulative_logprob"] == pytest.approx(sum(entry["logprob"] for entry in entries), abs=1e-4)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_alone_adds_nothing_else(scribe: RunningServer, flag: str) -> None:
    told = generate(scribe, **{flag: True})
    assert OUTPUTS & told.keys() == {flag.removeprefix("return_")}
    assert not OUTPUTS & generate(scribe, **{flag: False}).keys()


def test_as_many_alternatives_are_told_as_the_request_says(scribe: RunningServer) -> None:
    told = generate(scribe, return_logprobs=True, sampling_parameters={"logprobs": 3})
    assert [len(entry) for entry in json.loads(told["logprobs"])] == [3] * 6


def test_each_of_several_texts_has_its_own(scribe: RunningServer) -> None:
    told = generate(scribe, **dict.fromkeys(FLAGS, True), n=2, temperature=1.0, seed=3, ignore_eos=True)
    assert told["finish_reason"] == ["length"] * 2
    assert told["num_output_tokens"] == [6, 6]
    sums = [sum(next(iter(one.values()))["logprob"] for one in json.loads(text)) for text in told["logprobs"]]
    assert told["cumulative_logprob"] == pytest.approx(sums, abs=1e-4)
    assert sums[0] != sums[1]


def test_pieces_of_a_stream_tell_what_is_new(scribe: RunningServer) -> None:
    whole = generate(scribe, **dict.fromkeys(FLAGS, True))
    body = {**PROMPT, **dict.fromkeys(FLAGS, True), "stream": True}
    status, _, text = scribe.ask("POST", "/v2/models/scribe/generate_stream", body)
    assert status == 200
    events = [json.loads(event.removeprefix(b"data: ")) for event in text.split(b"\n\n") if event]
    assert "".join(event["text_output"] for event in events) == whole["text_output"]
    assert [event["finish_reason"] for event in events] == [""] * (len(events) - 1) + ["length"]
    assert {event["num_input_tokens"] for event in events} == {whole["num_input_tokens"]}
    assert sum(event["num_output_tokens"] for event in events) == 6
    sums = [event["cumulative_logprob"] for event in events]
    assert sums == sorted(sums, reverse=True)
    assert sums[-1] == pytest.approx(whole["cumulative_logprob"])
    assert [entry for event in events if "logprobs" in event for entry in entries_of(event)] == entries_of(whole)
