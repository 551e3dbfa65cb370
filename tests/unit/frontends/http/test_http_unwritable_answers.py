"""Responses that cannot be written, as none should be: a client is told so, or its connection ends; it never waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

FAILURE = b'{"error":"the server failed to answer the request"}'
TENSOR = Tensor("OUTPUT0", "FP32", (1,), bytes(4))
INFER = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'
WAYS = {
    "infer": ("/v2/models/ident/infer", INFER, "ident"),
    "generate": ("/v2/models/text/generate", b'{"INPUT0":"x"}', "text"),
    "generate_stream": ("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}', "stream"),
}


LARGE = Tensor("OUTPUT0", "FP32", (1, 200_000), bytes(800_000))
"""Written in a thread."""


def unwritable(tensor: Tensor = TENSOR, is_final: bool = True) -> InferenceResponse:
    parameters: Any = {"p": object()}
    return InferenceResponse([tensor], None, parameters, is_final)


async def told(client: Any, request: bytes) -> bytes:
    """What a client hears, also from another thread."""
    client.feed(request)
    await asyncio.wait_for(client.answered(), 30)
    return bytes(client.take())


@pytest.mark.parametrize("tensor", [TENSOR, LARGE], ids=["short", "long"])
@pytest.mark.parametrize("way", WAYS)
def test_a_response_that_cannot_be_written_is_answered_with_an_error(
    way: str, tensor: Tensor, client: Any, server: Any, post: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path, body, model = WAYS[way]
    server.models[model].behaviour = lambda request: request.respond(unwritable(tensor))
    answer = asyncio.run(told(client, post(path, body)))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert FAILURE in answer
    assert server.requests[0].is_cancelled
    assert f"failed to answer POST {path}" in caplog.text


@pytest.mark.parametrize("tensor", [TENSOR, LARGE], ids=["short", "long"])
def test_a_stream_whose_next_response_cannot_be_written_ends_with_its_connection(
    tensor: Tensor, client: Any, server: Any, post: Any
) -> None:
    def stream(request: Any) -> None:
        request.respond(InferenceResponse([TENSOR], is_final=False))
        request.respond(unwritable(tensor, is_final=False))

    server.models["stream"].behaviour = stream
    answer = asyncio.run(told(client, post("/v2/models/stream/generate_stream", b'{"INPUT0":"x"}')))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.count(b"data: ") == 1
    assert not answer.endswith(b"0\r\n\r\n")  # a client can tell that this is not all
    assert client.transport.is_closed or client.transport.has_written_eof
    assert server.requests[0].is_cancelled
