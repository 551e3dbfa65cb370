"""Forms at the two endpoints that take them: what becomes of fields, in which order, and what is told of errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


def form_request(path: str, body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: h", b"Content-Type: multipart/form-data; boundary=B"]
    return b"\r\n".join([*lines, *headers, b"Content-Length: %d" % len(body), b"", body])


def field(name: str, content: bytes, file_name: str = "") -> bytes:
    more = f'; filename="{file_name}"' if file_name else ""
    return f'--B\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"


def answer(connect: Any, request: bytes) -> bytes:
    async def scenario() -> bytes:
        client = connect()
        client.feed(request)
        await client.answered()
        output: bytes = client.take()
        return output

    return asyncio.run(scenario())


def test_a_file_and_a_wish_reach_the_model(server: Any, connect: Any) -> None:
    body = field("INPUT0", b"\0\xff", "a.bin") + field("id", b"me") + field("mood", b"good") + b"--B--"
    output = answer(connect, form_request("/v2/models/text/infer", body))
    assert output.startswith(b"HTTP/1.1 200 OK")
    (request,) = server.requests
    assert (request.id, request.parameters) == ("me", {"mood": "good"})
    assert request.inputs["INPUT0"].to_numpy().tolist() == [b"\0\xff"]


@pytest.mark.parametrize("endpoint", ["infer", "generate"])
def test_numbers_of_fields_are_a_tensor(server: Any, connect: Any, endpoint: str) -> None:
    body = field("INPUT0", b"[[1.5, 2]]") + field("INPUT0", b"-3e1") + b"--B--"
    answer(connect, form_request(f"/v2/models/ident/{endpoint}", body))
    (request,) = server.requests
    assert request.inputs["INPUT0"].to_numpy().tolist() == [[1.5, 2.0, -30.0]]


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (field("INPUT0", b"x", "a.jpg") + b"--B--", (), b"415 Unsupported Media Type", b"how it is made of a file"),
        (field("INPUT0", b"x"), (), b"400 Bad Request", b"is cut short"),
        (b"--B--", (b"Content-Encoding: gzip",), b"415 Unsupported Media Type", b"without Content-Encoding"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_words(
    server: Any, connect: Any, body: bytes, headers: tuple[bytes, ...], status: bytes, words: bytes
) -> None:
    output = answer(connect, form_request("/v2/models/ident/infer", body, *headers))
    assert output.startswith(b"HTTP/1.1 " + status)
    assert words in output
    assert server.requests == []


def test_requests_behind_a_form_are_answered_in_their_order(server: Any, connect: Any) -> None:
    form = form_request("/v2/models/text/infer", field("INPUT0", b"x", "a") + field("id", b"form") + b"--B--")
    text = b'{"id":"json","inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":["y"]}]}'
    plain = b"POST /v2/models/text/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
    output = answer(connect, form + plain)
    assert output.index(b'"form"') < output.index(b'"json"')
