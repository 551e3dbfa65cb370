"""The Falcon ensemble in OpenAI's API: prompts are left out, and options mean what they mean there."""

from __future__ import annotations

import json
from typing import Any

from running_server import RunningServer

PROMPT = "What is the height of Eiffel Tower?"


def generated(server: RunningServer, prompt: str, **more: Any) -> str:
    """The ensemble's own words, which begin with the prompt."""
    fields = {"text_input": prompt, "max_tokens": 8, **more}
    status, _, body = server.ask("POST", "/v2/models/ensemble/generate", fields)
    assert status == 200, body
    return str(json.loads(body)["text_output"])


def completed(server: RunningServer, prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
    body = {"model": "ensemble", "prompt": prompt, "max_tokens": 8, **more}
    status, _, answer = server.ask("POST", "/v1/completions", body)
    assert status == 200, answer
    return dict(json.loads(answer))


def streamed(server: RunningServer, path: str, **body: Any) -> list[dict[str, Any]]:
    """The choices of a stream's events."""
    status, _, text = server.ask("POST", path, {"model": "ensemble", "max_tokens": 8, "stream": True, **body})
    assert status == 200, text
    events = [line.removeprefix(b"data: ") for line in text.split(b"\n\n") if line]
    assert events.pop() == b"[DONE]"
    return [choice for event in events for choice in json.loads(event)["choices"]]


def test_an_answer_is_without_its_prompt(served: RunningServer) -> None:
    written = generated(served, PROMPT).removeprefix(PROMPT)
    assert written
    assert completed(served)["choices"][0]["text"] == written
    assert completed(served, echo=True)["choices"][0]["text"] == PROMPT + written
    assert "".join(choice["text"] for choice in streamed(served, "/v1/completions", prompt=PROMPT)) == written


def test_a_chat_is_answered_without_what_was_said_before(served: RunningServer) -> None:
    prompt = "User: Hi\nAssistant:"
    written = generated(served, prompt).removeprefix(prompt)
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "ensemble", "messages": messages, "max_tokens": 8}
    answer = json.loads(served.ask("POST", "/v1/chat/completions", body)[2])
    assert answer["choices"][0]["message"]["content"] == written
    choices = streamed(served, "/v1/chat/completions", messages=messages)
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == written


def test_an_answer_ends_before_its_stop_text(served: RunningServer) -> None:
    written = completed(served)["choices"][0]["text"]
    stop = written.split()[3]
    expected = written[: written.index(stop)]
    answer = completed(served, stop=[stop])["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == (expected, "stop")
    choices = streamed(served, "/v1/completions", prompt=PROMPT, stop=[stop])
    assert "".join(choice["text"] for choice in choices) == expected
    assert choices[-1]["finish_reason"] == "stop"
    kept = completed(served, stop=[stop], include_stop_str_in_output=True)["choices"][0]
    assert kept["text"] == expected + stop


def test_a_temperature_draws_other_words_for_each_choice(served: RunningServer) -> None:
    def drawn(**more: Any) -> list[str]:
        return [str(choice["text"]) for choice in completed(served, **more)["choices"]]

    (likely,) = drawn()
    texts = drawn(temperature=1.0, n=3)
    assert len({likely, *texts}) == 4
    assert len(set(drawn(top_p=0.99) + drawn(top_p=0.99))) == 2
    assert drawn(temperature=0, n=2) == [likely, likely]


def test_a_seed_gives_the_same_words_again(served: RunningServer) -> None:
    def drawn(**more: Any) -> list[str]:
        return [str(choice["text"]) for choice in completed(served, temperature=1.0, **more)["choices"]]

    texts = drawn(seed=7, n=3)
    assert len(set(texts)) == 3
    assert drawn(seed=7, n=3) == texts
    assert drawn(seed=8) == texts[1:2]


def test_the_tokens_are_the_models_and_a_text_that_they_end_is_cut_off(served: RunningServer) -> None:
    answer = completed(served)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 8
    assert completed(served, n=2, temperature=1.0)["usage"]["completion_tokens"] == 16
    assert answer["usage"]["prompt_tokens"] == completed(served, n=2)["usage"]["prompt_tokens"]


def test_a_frequency_penalty_is_followed(served: RunningServer) -> None:
    assert completed(served, frequency_penalty=2)["choices"][0]["text"] != completed(served)["choices"][0]["text"]
    assert completed(served, frequency_penalty=0)["choices"] == completed(served)["choices"]
