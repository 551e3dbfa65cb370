"""A served model that guesses next tokens: the same texts, and what clients and operators are told of the guesses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, exchange

EXAMPLE = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe"
LABELS = (("model", "scribe"), ("version", "1"))
TEXT = "The cat sat on the mat. The cat sat on the mat. The cat sat on the mat. The cat"


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("guessing")
    shutil.copytree(EXAMPLE, folder / "model_repository" / "scribe")
    config = folder / "model_repository" / "scribe" / "config.pbtxt"
    config.write_text(config.read_text() + 'parameters { key: "draft_model" value { string_value: "1" } }\n')
    with RunningServer(folder) as server:
        server.wait_until_listening()
        server.until_ready("scribe")
        yield server


def generate(server: RunningServer, **fields: object) -> tuple[str, dict[str, float]]:
    """The text, and what X-Explain tells of the engine."""
    connection = server.connect()
    body = json.dumps({"text_input": TEXT, "max_tokens": 40, "ignore_eos": True, **fields})
    connection.request("POST", "/v2/models/scribe/generate", body, {"X-Explain": "1"})
    response = connection.getresponse()
    text = json.loads(response.read())["text_output"]
    connection.close()
    return text, json.loads(response.headers["X-Explain"])["engine"]


def test_texts_are_the_same_and_guesses_are_counted(guessing: RunningServer) -> None:
    text, engine = generate(guessing)
    plain, without = generate(guessing, speculation=False)
    assert text == plain
    assert engine["draft_tokens"] >= engine["accepted_tokens"] > 0
    assert not {"draft_tokens", "accepted_tokens"} & without.keys()
    sampled = {"temperature": 1.0, "seed": 7}
    assert generate(guessing, **sampled)[0] == generate(guessing, speculation=False, **sampled)[0]


def test_metrics_and_statistics_tell_how_many_guesses_were_right(guessing: RunningServer) -> None:
    generate(guessing)
    name = "vllm:spec_decode_num_{}_tokens_total"
    guessing.until(lambda: guessing.metric(name.format("accepted")).get(LABELS, 0) > 0)
    accepted, drafted = (guessing.metric(name.format(word))[LABELS] for word in ("accepted", "draft"))
    assert drafted >= accepted
    assert 0 < guessing.metric("vllm:spec_decode_draft_acceptance_rate")[LABELS] <= 1
    connection = guessing.connect()
    found = json.loads(exchange(connection, "GET", "/v2/models/scribe/stats")[-1])["model_stats"][0]["engine_stats"]
    connection.close()
    assert found["draft_tokens"]["count"] >= found["accepted_tokens"]["count"] > 0
