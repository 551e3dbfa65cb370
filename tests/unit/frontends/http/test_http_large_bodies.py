"""Large bodies: when memory is taken for them."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.frontends.http.body import FIRST_BYTES
from trireme.protocol.http1.body_buffer import reserve


def test_memory_for_a_large_body_is_taken_when_some_of_it_is_there(
    connect: Any, post: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []

    def counted(size_bytes: int) -> memoryview:
        reserved.append(size_bytes)
        return reserve(size_bytes)

    monkeypatch.setattr("trireme.frontends.http.body.reserve", counted)
    client = connect()
    whole = post("/v2/models/quiet/infer", bytes(4 << 20), "Inference-Header-Content-Length: 0")
    client.feed(whole[: 256 << 10])
    assert reserved == [FIRST_BYTES]
    client.feed(whole[256 << 10 : 1 << 20])
    assert sum(reserved) == FIRST_BYTES + (4 << 20)


def test_a_large_body_that_there_is_no_memory_for_is_refused(
    client: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(size_bytes: int) -> memoryview:
        if size_bytes > FIRST_BYTES:
            raise MemoryError
        return reserve(size_bytes)

    monkeypatch.setattr("trireme.frontends.http.body.reserve", scarce)

    async def story() -> bytes:
        client.feed(post("/v2/models/quiet/infer", bytes(4 << 20), "Inference-Header-Content-Length: 0")[: 1 << 20])
        return bytes(client.take())

    assert loop.run_until_complete(story()).startswith(b"HTTP/1.1 413 ")
