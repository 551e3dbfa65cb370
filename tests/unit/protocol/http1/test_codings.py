"""Content codings and the chunked transfer coding."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.protocol.http1.chunks import LAST_CHUNK, MAX_CHUNKS, ChunkedDecoder, frame
from trireme.protocol.http1.compression import CompressedBody, choose_coding, compress
from trireme.protocol.http1.sse import encode_event


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", "identity"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("*", "identity"),
        ("gzip;q=0", "identity"),
        ("identity;q=0.5, gzip;q=0.4", "identity"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("br, gzip", "gzip"),
        ("gzip;q=abc", "identity"),
    ],
)
def test_the_highest_quality_wins_and_the_first_of_equals(header: str, coding: str) -> None:
    assert choose_coding(header) == coding


@given(st.text(max_size=30))
def test_any_header_gives_a_coding(header: str) -> None:
    assert choose_coding(header) in ("identity", "gzip", "deflate")


@given(st.binary(max_size=2000), st.sampled_from(["gzip", "deflate"]))
def test_bodies_survive_compression(body: bytes, coding: str) -> None:
    compressed = compress([body[:10], memoryview(body)[10:]], coding)
    packed = CompressedBody(compressed, 2000)
    assert packed.within(2000) == body
    assert packed.whole(packed.count()) == body
    assert packed.most_bytes >= len(body)
    assert (gzip.decompress if coding == "gzip" else zlib.decompress)(compressed) == body


@pytest.mark.parametrize("inflate", [CompressedBody.count, lambda body: body.within(1000)])
def test_a_body_that_inflates_too_far_is_refused(inflate: Callable[[CompressedBody], object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        inflate(CompressedBody(gzip.compress(b"\0" * 1001), 1000))
    assert caught.value.message == (
        "Decompressed data size exceeds the maximum allowed value of 1000 bytes. "
        "Use --http-max-input-size to increase the limit."
    )
    inflate(CompressedBody(gzip.compress(b"\0" * 1000), 1000))


def test_a_body_that_is_larger_than_asked_for_is_none_of_the_answer() -> None:
    assert CompressedBody(gzip.compress(b"\0" * 11), 1000).within(10) is None


@pytest.mark.parametrize("body", [b"", b"xxxx", gzip.compress(b"abc", mtime=0)[:-4]])
@pytest.mark.parametrize("inflate", [CompressedBody.count, lambda body: body.within(1000)])
def test_what_is_not_compressed_is_refused(inflate: Callable[[CompressedBody], object], body: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        inflate(CompressedBody(body, 1000))


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.binary(max_size=5), st.data())
def test_chunked_bodies_come_out_the_same_however_they_arrive(
    chunks: list[bytes], following: bytes, data: st.DataObject
) -> None:
    raw = b"".join(map(frame, chunks)) + LAST_CHUNK
    decoder = ChunkedDecoder(10_000)
    rest: bytes | None = None
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        rest = decoder.feed(raw[:size] if size < len(raw) else raw + following)
        raw = raw[size:]
    assert rest == following
    assert decoder.body() == b"".join(chunks)


def test_extensions_and_trailers_are_passed_over() -> None:
    decoder = ChunkedDecoder(100)
    assert decoder.feed(b"3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\nNEXT") == b"NEXT"
    assert decoder.body() == b"abc"


@pytest.mark.parametrize(
    "raw",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"3\r\nabcd\r\n",
        b"0x3\r\nabc\r\n",
        b"f" * 17 + b"\r\n",
        b"1" * 5000,
        b"3;a\nb\r\nabc\r\n",
        b"3;a\rb\r\nabc\r\n",
        b"0\r\nA: b\nC: d\r\n\r\n",
    ],
)
def test_malformed_chunks_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        ChunkedDecoder(1 << 70).feed(raw)


def test_the_size_of_a_chunked_body_is_limited_before_it_arrives() -> None:
    with pytest.raises(InvalidArgumentError, match="maximum allowed size of 10 bytes"):
        ChunkedDecoder(10).feed(b"b\r\n")


def test_the_number_of_chunks_is_limited() -> None:
    decoder = ChunkedDecoder(1 << 30)
    assert decoder.feed(b"1\r\na\r\n" * MAX_CHUNKS) is None
    with pytest.raises(InvalidArgumentError, match="more than 65536 chunks"):
        decoder.feed(b"1\r\na\r\n")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_nothing_but_a_serving_error(raw: bytes) -> None:
    try:
        ChunkedDecoder(1000).feed(raw)
    except ServingError:
        pass


def test_an_event_is_one_line_of_data() -> None:
    assert encode_event(b'{"a":1}') == b'data: {"a":1}\n\n'
