"""Answers over HTTP/1.1: heads, chunks, events, errors."""

from __future__ import annotations

import pytest

from trireme.tools.perf.wire.http1_responses import ChunkedBody, EventSplitter, HeadReader, error_text


def test_a_head_tells_the_length_of_its_body() -> None:
    reader = HeadReader()
    head = reader.read(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nInference-Header-Content-Length: 5")
    assert (head.status, head.length, head.json_length, head.is_last) == (200, 12, 5, False)
    assert reader.read(b"HTTP/1.1 400 Bad\r\nConnection: Close\r\nContent-Length: 0").is_last
    assert reader.read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").is_chunked
    with pytest.raises(ValueError, match="HTTP"):
        reader.read(b"\x00\x00\x12")


@pytest.mark.parametrize("name", [b"Content-Length", b"Inference-Header-Content-Length"])
@pytest.mark.parametrize("length", [b"-5", b"+5", b"5_0", b"", b"five", b"9" * 5000])
def test_a_length_that_is_none_is_refused(name: bytes, length: bytes) -> None:
    with pytest.raises(ValueError, match="which is no number of bytes"):
        HeadReader().read(b"HTTP/1.1 200 OK\r\n" + name + b": " + length)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_are_put_together_however_they_come(size: int) -> None:
    text = b"5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n"
    body = ChunkedBody()
    found = b"".join(body.feed(text[start : start + size]) for start in range(0, len(text), size))
    assert found == b"hello, world"
    assert body.is_done


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_events_are_complete_or_not_there(size: int) -> None:
    text = b'data: {"a": 1}\n\n: comment\n\ndata: one\r\ndata: two\r\n\r\ndata: [DONE]\n\n'
    splitter = EventSplitter()
    events = [event for start in range(0, len(text), size) for event in splitter.feed(text[start : start + size])]
    assert events == [b'{"a": 1}', b"one\ntwo", b"[DONE]"]


@pytest.mark.parametrize("text", [b"f" * 70_000, b"-5\r\nhello\r\n", b"hello\r\n"])
def test_what_is_no_chunk_is_refused_before_it_fills_the_memory(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"no end|-5 bytes|invalid"):
        ChunkedBody().feed(text)


def test_an_event_without_an_end_is_given_up() -> None:
    splitter = EventSplitter()
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        for _ in range(80):
            splitter.feed(b"data: " + b"a" * (1 << 20))


def test_errors_have_words() -> None:
    assert error_text(400, b'{"error": "no such thing"}') == "no such thing"
    assert error_text(400, b'{"error": {"message": "neither"}}') == "neither"
    assert error_text(400, b'data: {"error":"1 is unlucky"}\n\n') == "1 is unlucky"
    assert error_text(400, b"data: [DONE]\n\n") == "data: [DONE]"
    assert error_text(502, b"a proxy's words") == "a proxy's words"
    assert error_text(502, b"[" * 200_000) == "[" * 200_000
    assert error_text(502, b"") == "the server answered with status 502"
