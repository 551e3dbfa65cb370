"""An answer that is not whole in its time is ended, whatever the request waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_server import RunningServer

LONG = {"max_tokens": 480, "ignore_eos": True}


def generate(server: RunningServer, **fields: Any) -> tuple[int, Any]:
    status, _, body = server.ask("POST", "/v2/models/scribe/generate", {"text_input": "Once", **fields})
    return status, json.loads(body)


def test_an_answer_that_takes_too_long_is_ended(scribe: RunningServer) -> None:
    assert generate(scribe, timeout=1, **LONG) == (503, {"error": "the request was ended: timeout"})
    assert generate(scribe, timeout=600_000_000, max_tokens=1)[0] == 200
    assert generate(scribe, timeout=0, max_tokens=1)[0] == 200


@pytest.mark.parametrize(("given", "words"), [(-1, "'timeout' must be 0 or more"), ("soon", "'timeout'")])
def test_what_is_no_time_is_refused(scribe: RunningServer, given: Any, words: str) -> None:
    status, answer = generate(scribe, timeout=given, max_tokens=1)
    assert status == 400
    assert words in answer["error"]


@pytest.mark.parametrize("timeout", [1, 300_000])
def test_the_time_in_which_its_grammar_is_compiled_counts(scribe: RunningServer, timeout: int) -> None:
    slow = {"guided_json": {"type": "integer", "multipleOf": 9_999_937 + timeout % 7}}
    for options in ({}, {"n": 3}):
        answer = generate(scribe, timeout=timeout, sampling_parameters=slow, **options)
        assert answer == (503, {"error": "the request was ended: timeout"})
