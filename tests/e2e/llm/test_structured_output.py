"""Answers of the shipped model by a schema, a pattern or a choice, as clients ask for them."""

from __future__ import annotations

import json
import re
from typing import Any

from running_server import RunningServer

PATH = "/v2/models/scribe/generate"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["London", "Paris"]}, "number": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["city", "number"],
    "additionalProperties": False,
}


def ask(server: RunningServer, parameters: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    messages = json.dumps([{"role": "user", "content": "What is the capital of France?"}])
    fields = {"messages": messages, "sampling_parameters": json.dumps({"max_tokens": 60, **parameters})}
    status, _, body = server.ask("POST", PATH, fields)
    return status, json.loads(body)


def test_an_object_by_schema_is_that_object(scribe: RunningServer) -> None:
    for temperature in (0.0, 1.0):
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
        status, answer = ask(scribe, {"response_format": wanted, "temperature": temperature})
        assert status == 200, answer
        found = json.loads(answer["text_output"])
        assert found.keys() == {"city", "number"}
        assert found["city"] in ("London", "Paris")
        assert 0 <= found["number"] <= 99


def test_a_pattern_and_a_choice_are_followed(scribe: RunningServer) -> None:
    status, answer = ask(scribe, {"guided_regex": "[A-Z][a-z]{2,5}!"})
    assert status == 200
    assert re.fullmatch("[A-Z][a-z]{2,5}!", answer["text_output"])
    status, answer = ask(scribe, {"guided_choice": ["It is London.", "The capital of France is Paris."]})
    assert (status, answer["text_output"]) == (200, "The capital of France is Paris.")


def test_a_schema_that_cannot_be_compiled_is_refused(scribe: RunningServer) -> None:
    status, answer = ask(scribe, {"guided_json": {"type": "whale"}})
    assert status == 400
    assert "'guided_json' cannot be compiled" in answer["error"]
    assert "whale" in answer["error"]


def test_openais_endpoint_takes_a_schema(scribe: RunningServer) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    fields = {
        "model": "scribe",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "response_format": wanted,
        "max_tokens": 60,
    }
    status, _, body = scribe.ask("POST", "/v1/chat/completions", fields)
    assert status == 200, body
    (choice,) = json.loads(body)["choices"]
    assert json.loads(choice["message"]["content"]).keys() == {"city", "number"}
    assert choice["finish_reason"] == "stop"
