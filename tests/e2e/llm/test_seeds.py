"""A seed means the same wherever a request says it, up to the last one there is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer

from trireme.llm import Engine, SamplingParams

PROMPT = "Once upon a time"
OPTIONS = {"max_tokens": 12, "temperature": 1.5}
SEEDS = [0, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, -1, -(2**63)]
BEYOND = [2**64, 2**70, -(2**63) - 1]
BOUNDS = "between -9223372036854775808 and 18446744073709551615"
SHIPPED = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe" / "1"
Write = Callable[[int], tuple[int, str]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load(SHIPPED, device="numpy") as engine:
        yield engine


@pytest.fixture(params=["beside the prompt", "sampling_parameters", "its text", "/v1"])
def write(scribe: RunningServer, request: pytest.FixtureRequest) -> Write:
    """Status and text, or error, for a seed that stands in this place."""

    def ask(seed: int) -> tuple[int, str]:
        options = {**OPTIONS, "seed": seed}
        if request.param == "/v1":
            status, answer = post(scribe, "/v1/completions", {"model": "scribe", "prompt": PROMPT, **options})
            return status, answer["choices"][0]["text"] if status == 200 else answer["error"]["message"]
        body: dict[str, Any] = {"text_input": PROMPT}
        if request.param == "beside the prompt":
            body |= options
        else:
            body["sampling_parameters"] = options if request.param == "sampling_parameters" else json.dumps(options)
        status, answer = post(scribe, "/v2/models/scribe/generate", body)
        return status, answer["text_output" if status == 200 else "error"]

    return ask


def test_a_seed_writes_the_same_in_every_place(engine: Engine, write: Write) -> None:
    wanted = [engine.generate(PROMPT, SamplingParams(**OPTIONS, seed=seed))[0].text for seed in SEEDS]  # type: ignore[arg-type]
    assert [write(seed) for seed in SEEDS] == [(200, text) for text in wanted]
    assert len(set(wanted)) == len(SEEDS)


@pytest.mark.parametrize("seed", BEYOND)
def test_a_seed_beyond_the_last_is_refused_with_the_bounds(write: Write, seed: int) -> None:
    status, message = write(seed)
    assert status == 400
    assert "'seed'" in message
    assert BOUNDS in message


def post(server: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    status, _, text = server.ask("POST", path, body)
    return status, json.loads(text)
