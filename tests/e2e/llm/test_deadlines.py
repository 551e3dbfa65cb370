"""An answer that is not whole in its time is ended, whatever the request waits for."""

from __future__ import annotations

import json
import threading
import time
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


def test_the_wait_for_a_grammar_counts(scribe: RunningServer) -> None:
    ended: list[str] = []

    def hold_up() -> None:
        schema = {"type": "integer", "multipleOf": 9_999_943}
        status, _ = generate(scribe, sampling_parameters={"guided_json": schema})
        ended.append(f"slow: {status}")

    slow = threading.Thread(target=hold_up)
    slow.start()
    time.sleep(0.5)  # its grammar is being tried by now
    status, answer = generate(scribe, timeout=300_000, guided_regex="[w-z]{3}")
    ended.append(f"other: {status}")
    slow.join(120)
    assert answer == {"error": "the request was ended: timeout"}
    assert ended == ["other: 503", "slow: 400"]
