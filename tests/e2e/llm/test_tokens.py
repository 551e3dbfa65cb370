"""`/tokenize` and `/detokenize` of the shipped model, in vLLM's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer

CONFIG = json.loads((Path(__file__).parents[3] / "examples/model_repository/scribe/1/config.json").read_text())
SIZE, LENGTH = CONFIG["vocab_size"], CONFIG["max_position_embeddings"]


def ask(server: RunningServer, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    status, _, text = server.ask("POST", path, {"model": "scribe", **fields})
    return status, json.loads(text)


def test_tokens_come_with_the_length_that_the_model_takes(scribe: RunningServer) -> None:
    status, found = ask(scribe, "/tokenize", prompt="The sea")
    assert status == 200
    assert found.keys() == {"count", "max_model_len", "tokens", "token_strs"}
    assert (found["count"], found["max_model_len"], found["token_strs"]) == (len(found["tokens"]), LENGTH, None)


def test_texts_of_tokens_are_told_where_they_are_asked_for(scribe: RunningServer) -> None:
    plain = ask(scribe, "/tokenize", prompt="The sea")[1]
    status, found = ask(scribe, "/tokenize", prompt="The sea", return_token_strs=True)
    assert (status, found["tokens"]) == (200, plain["tokens"])
    assert len(found["token_strs"]) == found["count"]
    assert "".join(found["token_strs"]).endswith("The sea")
    assert ask(scribe, "/tokenize", prompt="x", return_token_strs="yes")[0] == 400


@pytest.mark.parametrize("token", [SIZE, 10**6, 2**31 - 1])
def test_ids_outside_the_vocabulary_have_no_text(scribe: RunningServer, token: int) -> None:
    status, found = ask(scribe, "/detokenize", tokens=[5, token])
    assert status == 400
    assert f"token id {token} is not one of the {SIZE} of the vocabulary" in found["error"]["message"]
    assert ask(scribe, "/detokenize", tokens=[5, SIZE - 1])[0] == 200
