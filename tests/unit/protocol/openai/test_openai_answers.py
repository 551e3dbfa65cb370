"""Answers of OpenAI's API, to the byte where clients depend on it."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from trireme.core.errors import (
    CancelledError,
    InternalError,
    InvalidArgumentError,
    PromptTooLongError,
    QueueFullError,
    ServingError,
    UnavailableError,
)
from trireme.core.tensor import Tensor
from trireme.protocol.openai.answers import ChatWriter, CompletionWriter, encode_model
from trireme.protocol.openai.embeddings import EmbeddingRequest, encode_embeddings
from trireme.protocol.openai.errors import (
    FieldError,
    TooLargeError,
    UnknownModelError,
    encode_api_error,
    status_and_type,
)
from trireme.protocol.openai.pieces import Piece
from trireme.protocol.openai.usage import Usage

USAGE = b'{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}'


def token(text: str, logprob: float, *others: tuple[str, float]) -> dict[str, Any]:
    top = [{"token": other, "bytes": None, "logprob": value} for other, value in others]
    return {"token": text, "bytes": list(text.encode()), "logprob": logprob, "top_logprobs": top}


def usage(*texts: bytes) -> Usage:
    found = Usage()
    for text in texts:
        found.add(text)
    return found


def chunks(writer: ChatWriter | CompletionWriter, *pieces: Piece) -> list[dict[str, Any]]:
    return [json.loads(data) for piece in pieces if (data := writer.chunk(piece))]


def test_first_chunk_of_a_chat_has_the_role() -> None:
    writer = ChatWriter("chatcmpl-1", 5, "m")
    assert writer.chunk(Piece(0, "Hi")) == (
        b'{"id":"chatcmpl-1","created":5,"model":"m","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
        b'{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":null}]}'
    )
    assert writer.chunk(Piece(0, "")) == b""
    (last,) = chunks(writer, Piece(0, finish_reason="stop"))
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]


def test_each_choice_begins_with_a_role() -> None:
    found = chunks(ChatWriter("x", 5, "m"), Piece(1, "a"), Piece(0, finish_reason="stop"))
    assert [entry["choices"][0]["delta"] for entry in found] == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": ""},
    ]


def test_deltas_of_the_model_go_through() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    (chunk,) = chunks(ChatWriter("x", 5, "m"), Piece(0, "ignored", {"tool_calls": [call]}, "tool_calls"))
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "tool_calls": [call]}
    assert chunk["choices"][0]["finish_reason"] == "tool_calls"


def test_usage_chunk_has_no_choices() -> None:
    for writer in (ChatWriter("x", 5, "m"), CompletionWriter("x", 5, "m")):
        chunk = json.loads(writer.usage_chunk(usage(USAGE)))
        assert chunk["choices"] == []
        assert chunk["usage"] == json.loads(USAGE)


def test_whole_chat_joins_its_pieces() -> None:
    writer = ChatWriter("x", 5, "m")
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a"'}}
    for piece in (
        Piece(1, "Hel", logprobs={"content": [token("Hel", -0.5)]}),
        Piece(1, "lo", logprobs={"content": [token("lo", -0.25)]}, finish_reason="length"),
        Piece(0, delta={"reasoning_content": "hm", "content": None}),
        Piece(0, delta={"reasoning_content": "m", "tool_calls": [call]}),
        Piece(0, delta={"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}, finish_reason="tool_calls"),
    ):
        writer.add(piece)
    answer = json.loads(writer.whole(usage(USAGE, USAGE)))
    assert answer["object"] == "chat.completion"
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    first, second = answer["choices"]
    assert first["message"] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hmm",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}}],
    }
    assert first["finish_reason"] == "tool_calls"
    assert second["message"] == {"role": "assistant", "content": "Hello"}
    assert [entry["token"] for entry in second["logprobs"]["content"]] == ["Hel", "lo"]
    assert second["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 14
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}


def test_usage_that_nobody_knows_is_left_out() -> None:
    for writer in (ChatWriter("x", 5, "m"), CompletionWriter("x", 5, "m")):
        writer.add(Piece(0, "a"))
        assert "usage" not in json.loads(writer.whole(Usage()))


def test_usage_of_a_model_that_does_not_write_json_is_its_error() -> None:
    with pytest.raises(InternalError, match="'usage'"):
        usage(b"seven")


def test_completions_have_texts_and_their_own_logprobs() -> None:
    pieces = (
        Piece(0, "ab", logprobs={"content": [token("a", -1.0, ("a", -1.0), ("b", -2.0)), token("b", -0.5)]}),
        Piece(0, "c", logprobs={"content": [token("c", 0.0)]}, finish_reason="stop"),
    )
    writer = CompletionWriter("cmpl-1", 5, "m")
    first, last = chunks(writer, *pieces)
    assert first["object"] == last["object"] == "text_completion"
    assert first["choices"][0]["text"] == "ab"
    assert last["choices"][0]["logprobs"]["text_offset"] == [2]
    assert last["choices"][0]["finish_reason"] == "stop"
    whole = CompletionWriter("cmpl-1", 5, "m")
    for piece in pieces:
        whole.add(piece)
    assert json.loads(whole.whole(Usage()))["choices"] == [
        {
            "index": 0,
            "text": "abc",
            "logprobs": {
                "text_offset": [0, 1, 2],
                "token_logprobs": [-1.0, -0.5, 0.0],
                "tokens": ["a", "b", "c"],
                "top_logprobs": [{"a": -1.0, "b": -2.0}, None, None],
            },
            "finish_reason": "stop",
        }
    ]


def test_places_of_tokens_count_an_echoed_prompt() -> None:
    writer = CompletionWriter("cmpl-1", 5, "m")
    writer.add(Piece(0, "Oncea", logprobs={"content": [token("a", -1.0)]}))
    writer.add(Piece(0, "b", logprobs={"content": [token("b", -1.0)]}))
    assert json.loads(writer.whole(Usage()))["choices"][0]["logprobs"]["text_offset"] == [4, 5]


def test_model_of_the_list() -> None:
    assert encode_model("m", 5) == {"id": "m", "object": "model", "created": 5, "owned_by": "trireme"}


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (FieldError("n", "no", "invalid_value"), 400, "invalid_request_error", "n", "invalid_value"),
        (UnknownModelError("m"), 404, "invalid_request_error", "model", "model_not_found"),
        (TooLargeError(5, 4), 413, "invalid_request_error", None, None),
        (QueueFullError("full"), 429, "rate_limit_error", None, "queue_full"),
        (QueueFullError("full").for_request("a"), 429, "rate_limit_error", None, "queue_full"),
        (UnavailableError("gone"), 503, "server_error", None, None),
        (InternalError("broken"), 500, "server_error", None, None),
        (InvalidArgumentError("wrong"), 400, "invalid_request_error", None, None),
        (PromptTooLongError("long"), 400, "invalid_request_error", None, "context_length_exceeded"),
        (InvalidArgumentError("the prompt has 9 tokens, says a model"), 400, "invalid_request_error", None, None),
        (CancelledError("over"), 400, "invalid_request_error", None, None),
    ],
)
def test_errors(error: ServingError, status: int, kind: str, param: str | None, code: str | None) -> None:
    assert status_and_type(error) == (status, kind)
    expected = {"message": error.message, "type": kind, "param": param, "code": code}
    assert json.loads(encode_api_error(error)) == {"error": expected}


def vectors(request: EmbeddingRequest, *arrays: Any) -> list[Any]:
    tensors = [Tensor.from_numpy("embedding", np.asarray(array, np.float32)) for array in arrays]
    return [entry["embedding"] for entry in json.loads(encode_embeddings(request, tensors, Usage()))["data"]]


def test_embeddings_as_numbers_and_in_base64() -> None:
    assert vectors(EmbeddingRequest("m", ["a", "b"], False, None), [[1, 2]], [[3, 4]]) == [[1.0, 2.0], [3.0, 4.0]]
    (text,) = vectors(EmbeddingRequest("m", ["a"], True, None), [[1, 2]])
    assert np.frombuffer(base64.b64decode(text), "<f4").tolist() == [1.0, 2.0]


def test_vectors_of_tokens_are_averaged() -> None:
    assert vectors(EmbeddingRequest("m", ["a"], False, None), [[[1, 2], [3, 6]]]) == [[2.0, 4.0]]


def test_shortened_vectors_have_length_one() -> None:
    assert vectors(EmbeddingRequest("m", ["a"], False, 2), [[3, 4, 12]]) == [pytest.approx([0.6, 0.8])]
    with pytest.raises(FieldError, match="the model's vectors have 3"):
        vectors(EmbeddingRequest("m", ["a"], False, 4), [[3, 4, 12]])
