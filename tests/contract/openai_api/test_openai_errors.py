"""What is refused, with which status, and that the client's library makes its own errors of it."""

from __future__ import annotations

import json
import socket
from typing import Any

import openai
import pytest

HELLO = [{"role": "user", "content": "hello"}]


def refused(server: Any, path: str, body: object) -> tuple[int, dict[str, Any]]:
    status, headers, text = server.ask("POST", path, body)
    assert headers["content-type"] == "application/json"
    error = json.loads(text)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return status, error


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/v1/chat/completions", {"messages": HELLO}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/embeddings", {"input": "x"}),
        ("/tokenize", {"prompt": "x"}),
    ],
)
def test_unknown_model(server: Any, path: str, given: dict[str, Any]) -> None:
    status, error = refused(server, path, {"model": "nobody", **given})
    assert (status, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert "'nobody'" in error["message"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/chat/completion", " Did you mean '/v1/chat/completions'?"),
        ("/v1/embedding", " Did you mean '/v1/embeddings'?"),
        ("/v1/audio/speech", ""),
        ("/v1/" + "x" * 500, ""),
    ],
)
def test_unknown_path(server: Any, path: str, hint: str) -> None:
    status, error = refused(server, path, {"model": "talker"})
    assert (status, error["type"], error["code"]) == (404, "invalid_request_error", "unknown_url")
    assert error["message"] == f"Unknown request URL: POST {path[:200]}.{hint}"


def test_wrong_method_of_a_known_path(server: Any) -> None:
    status, error = refused(server, "/v1/models", {})
    assert (status, error["code"]) == (405, "method_not_supported")
    assert error["message"] == "Not allowed to POST on /v1/models, which takes GET."


def test_paths_of_another_api_keep_their_form(server: Any) -> None:
    assert server.ask("POST", "/v2/model", {})[::2] == (404, b'{"error":"Not Found"}')


def test_unknown_model_is_the_librarys_own_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=HELLO)  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{not json", None),
        (b"[]", None),
        ({"messages": HELLO}, "model"),
        ({"model": "talker"}, "messages"),
        ({"model": "talker", "messages": []}, "messages"),
        ({"model": "talker", "messages": "hello"}, "messages"),
        ({"model": "talker", "messages": HELLO, "temperature": "hot"}, "temperature"),
        ({"model": "talker", "messages": HELLO, "n": 1000}, "n"),
        ({"model": "adder", "messages": HELLO}, "model"),
        ({"model": "sentences", "messages": HELLO}, "model"),
        ({"model": "rhymer", "messages": HELLO, "tools": [{"function": {"name": "x"}}]}, "tools"),
        ({"model": "tiny", "messages": HELLO, "logprobs": True}, "logprobs"),
        (
            {"model": "rhymer", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
    ],
)
def test_request_that_cannot_be_followed(server: Any, body: object, param: str | None) -> None:
    status, error = refused(server, "/v1/chat/completions", body)
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)


def test_a_model_that_needs_more_than_a_prompt_is_refused_with_its_inputs(server: Any) -> None:
    message = refused(server, "/v1/completions", {"model": "repeater", "prompt": "a"})[1]["message"]
    assert message.endswith("does not generate text. Beside a prompt it needs 'TIMES', which no request here brings.")
    assert refused(server, "/v1/completions", {"model": "adder", "prompt": "a"})[1]["message"].endswith("text.")


def test_token_ids_for_a_model_of_texts(server: Any) -> None:
    assert refused(server, "/v1/completions", {"model": "rhymer", "prompt": [1, 2]})[1]["param"] == "prompt"
    assert refused(server, "/v1/embeddings", {"model": "sentences", "input": [1, 2]})[1]["param"] == "input"


def test_embeddings_of_a_model_that_writes(server: Any) -> None:
    assert refused(server, "/v1/embeddings", {"model": "rhymer", "input": "x"})[1]["param"] == "model"


def test_body_that_is_too_long_is_refused_before_it_is_read(server: Any) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as plain:
        plain.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000001\r\n")
        plain.sendall(b"Expect: 100-continue\r\n\r\n")
        answer = plain.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 Payload Too Large\r\n")
    assert b'{"error":{"message":"The request of 4000001 bytes is too large' in answer


def test_long_body_is_read_beside_the_loop(client: openai.OpenAI) -> None:
    text = "word " * 100_000  # twice what is read and written on the loop
    answer = client.completions.create(model="rhymer", prompt=text)
    assert answer.choices[0].text == text


def test_wrong_method(server: Any) -> None:
    assert server.ask("GET", "/v1/chat/completions")[0] == 405


@pytest.mark.parametrize(
    ("path", "members", "words"),
    [
        ("/v1/completions", {"prompt": "x", "num_beams": 2, "guided_regex": "a"}, "'num_beams' must be left out"),
        ("/v1/completions", {"prompt": "x", "skip_special_tokens": False}, "'skip_special_tokens' must be true"),
        ("/v1/completions", {"prompt": ["x"] * 1024, "guided_regex": "x" * 3_000_000}, "'guided_regex' has 3000002"),
        ("/v1/chat/completions", {"messages": HELLO, "chat_template_kwargs": {"tools": []}}, "must not have 'tools'"),
        ("/detokenize", {"tokens": [1, 2**32]}, "'input_ids' has 4294967296"),
        ("/tokenize", {"messages": HELLO, "add_special_tokens": True}, "'add_special_tokens' must be false"),
    ],
)
def test_what_the_language_model_cannot_follow_is_the_clients_fault(
    server: Any, path: str, members: dict[str, Any], words: str
) -> None:
    status, error = refused(server, path, {"model": "scribe", **members})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]


@pytest.mark.parametrize("field", [b'"messages"', b'"tools"', b'"chat_template_kwargs":{"x"', b'"user"'])
def test_deep_nesting_is_the_clients_fault(server: Any, field: bytes) -> None:
    for depth in (200, 300, 900, 50_000):
        nested = b"[" * depth + b"]" * depth
        closing = b"}" if b"{" in field else b""
        body = b'{"model":"scribe","max_tokens":1,"messages":[{"role":"user","content":"x"}],%b:%b%b}'
        status, _, text = server.ask("POST", "/v1/chat/completions", body % (field, nested, closing))
        assert status in (200, 400), text


def test_special_tokens_of_a_text_can_be_left_out(server: Any) -> None:
    counts = []
    for flag in (True, False):
        status, _, text = server.ask(
            "POST", "/tokenize", {"model": "scribe", "prompt": "Once upon", "add_special_tokens": flag}
        )
        assert status == 200, text
        counts.append(json.loads(text)["count"])
    assert counts[0] >= counts[1] > 0


def test_wrong_token_ids_and_roles(server: Any) -> None:
    error = refused(server, "/detokenize", {"model": "rhymer", "tokens": [5, -9]})[1]
    assert error["message"] == "'tokens' has to be an array of token ids, which are 0 or more."
    body = {"model": "rhymer", "messages": [{"role": "wizard", "content": "x"}]}
    assert "one of system, developer, user" in refused(server, "/v1/chat/completions", body)[1]["message"]
