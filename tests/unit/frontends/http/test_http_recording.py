"""The endpoints of recordings: pieces of a file as answers, and refusals as errors."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO
from typing import Any

import pytest

from trireme.protocol.recording.calls import decode_call
from trireme.protocol.recording.frames import MAGIC, Frame, read_frames

INFER = b'{"id":"r","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'


@pytest.fixture
def ask(client: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """Asks, and waits for answers that are made beside the loop; the body."""

    async def asked(raw: bytes) -> bytes:
        client.feed(raw)
        await asyncio.wait_for(client.answered(), 10)
        return client.take().partition(b"\r\n\r\n")[2]  # type: ignore[no-any-return]

    return lambda raw: loop.run_until_complete(asked(raw))


def frames(content: bytes) -> list[Any]:
    found = list(read_frames(BytesIO(content)))
    assert all(isinstance(entry, Frame) for entry in found)
    return found


def test_a_recording_from_its_start_to_its_end(ask: Any, get: Any, post: Any) -> None:
    assert json.loads(ask(get("/v2/recording"))) == {"is_allowed": True, "is_active": False}
    content = ask(post("/v2/recording/start", b'{"limit": 5}'))
    (begin,) = frames(content)
    assert (begin.header["kind"], begin.header["server"]) == ("recording", "triton")
    ask(post("/v2/models/ident/infer", INFER))
    status = json.loads(ask(get("/v2/recording")))
    assert (status["is_active"], status["recording"]["recorded"]) == (True, 1)
    name = json.dumps({"id": begin.header["id"]}).encode()
    (frame,) = frames(MAGIC + ask(post("/v2/recording/fetch", name)))
    call = decode_call(frame)
    assert (call.model, call.request_id, call.protocol, len(call.responses)) == ("ident", "r", "http", 1)
    assert ask(post("/v2/recording/fetch", name)) == b""
    assert json.loads(ask(post("/v2/recording/stop", b"")))["end_reason"] == "it was stopped"
    for _ in range(2):
        (end,) = frames(MAGIC + ask(post("/v2/recording/fetch", name)))
        assert (end.header["kind"], end.header["seen"]) == ("end", 1)


def test_a_client_says_what_has_arrived(ask: Any, post: Any) -> None:
    ask(post("/v2/recording/start", b"{}"))
    ask(post("/v2/models/ident/infer", INFER))
    for _ in range(2):
        assert len(frames(MAGIC + ask(post("/v2/recording/fetch", b'{"received": 0}')))) == 1
    assert ask(post("/v2/recording/fetch", b'{"received": 1}')) == b""
    assert b"between 1, which were told before, and 1" in ask(post("/v2/recording/fetch", b'{"received": 0}'))


@pytest.mark.parametrize(
    ("what", "body", "told"),
    [
        ("start", b"[]", b"an object of JSON"),
        ("start", b'{"sample": 2}', b"'sample' of a recording"),
        ("start", b"{", b"failed to parse"),
        ("fetch", b'{"id": 3}', b"'id' of a recording is a text"),
        ("fetch", b'{"received": true}', b"'received' of a recording is a number of calls"),
        ("fetch", b"{}", b"there is no such recording"),
        ("stop", b"{}", b"there is no such recording"),
    ],
)
def test_what_is_refused(ask: Any, post: Any, what: str, body: bytes, told: bytes) -> None:
    assert told in ask(post(f"/v2/recording/{what}", body))


def test_methods(client: Any, get: Any, post: Any) -> None:
    assert b"405 Not Allowed" in client.ask(post("/v2/recording", b""))
    assert b"405 Not Allowed" in client.ask(get("/v2/recording/start"))
