"""Header blocks: the cache of decoded blocks never changes what a block means, and encoded blocks are plain HPACK."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.protocol.http2.headers import MAX_HEADER_FIELDS, HeaderBlockDecoder, encode_block, read_request_headers
from trireme.protocol.http2.wire import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFault

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/b"), (b":authority", b"h")]

names = st.sampled_from([b"x-a", b"x-b", b"grpc-timeout", b"user-agent", b"content-type"])
values = st.binary(max_size=40).map(lambda raw: raw.hex().encode())
header_lists = st.lists(st.tuples(names, values), max_size=5)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30), st.lists(header_lists, min_size=6)
)
def test_cached_blocks_decode_as_an_uncached_decoder_does(picks, lists) -> None:
    encoder, plain = Encoder(), Decoder()
    cached = HeaderBlockDecoder(read_request_headers, 65536)
    for index, is_huffman in picks:
        block = encoder.encode(REQUEST + lists[index], huffman=is_huffman)
        expected = [tuple(field) for field in plain.decode(block, raw=True)]
        headers = cached.decode(block)
        assert [(b":method", headers.method), (b":path", headers.path)] == [expected[0], expected[2]]
        assert headers.fields == expected[4:]


def test_a_repeated_block_gives_the_same_object_until_the_table_changes() -> None:
    encoder, decoder = Encoder(), HeaderBlockDecoder(read_request_headers, 65536)
    decoder.decode(encoder.encode(REQUEST))
    block = encoder.encode(REQUEST)
    first = decoder.decode(block)
    assert decoder.decode(block) is first
    decoder.decode(encoder.encode([*REQUEST, (b"x-new", b"1")]))
    assert decoder.decode(encoder.encode(REQUEST)) is not first


def test_a_block_means_something_else_after_the_table_changed() -> None:
    """The index of the newest entry stays the same while the entry behind it does not."""
    decoder = HeaderBlockDecoder(read_request_headers, 65536)
    newest = bytes((0x80 | 62,))
    literal = b"\x40\x03x-a\x01"
    head = encode_block(REQUEST)
    decoder.decode(head + literal + b"1")
    assert decoder.decode(head + newest).fields == [(b"x-a", b"1")]
    decoder.decode(head + literal + b"2")
    assert decoder.decode(head + newest).fields == [(b"x-a", b"2")]


def test_a_block_with_a_table_size_update_is_never_cached() -> None:
    decoder = HeaderBlockDecoder(read_request_headers, 65536)
    decoder.decode(encode_block(REQUEST) + b"\x40\x03x-a\x011")
    newest = encode_block(REQUEST) + bytes((0x80 | 62,))
    assert decoder.decode(newest).fields == [(b"x-a", b"1")]
    decoder.decode(b"\x20\x3f\xe1\x1f" + encode_block(REQUEST))
    with pytest.raises(ConnectionFault) as caught:
        decoder.decode(newest)
    assert caught.value.code == COMPRESSION_ERROR


def test_an_oversized_header_list_is_refused() -> None:
    decoder = HeaderBlockDecoder(read_request_headers, 1000)
    with pytest.raises(ConnectionFault) as caught:
        decoder.decode(encode_block([*REQUEST, (b"x", b"y" * 1000)]))
    assert caught.value.code == ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "unit",
    [b"\x82", b"\xbe", b"\x0f\x01\x01v", b"\x00\x01n\x01v", b"\x10\x01n\x00", b"\x40\x01n\x01v", b"\x20"],
    ids=["static", "dynamic", "named by index", "literal", "never indexed", "indexed", "table size"],
)
def test_a_block_of_many_small_fields_is_refused_before_it_is_decoded(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = HeaderBlockDecoder(lambda fields: len(fields), 65536)
    decoder.decode(b"\x40\x01a\x01b")
    assert decoder.decode(unit * MAX_HEADER_FIELDS) == (0 if unit == b"\x20" else MAX_HEADER_FIELDS)
    monkeypatch.setattr(Decoder, "decode", None)
    with pytest.raises(ConnectionFault, match="too many fields") as caught:
        decoder.decode(unit * (MAX_HEADER_FIELDS + 1))
    assert caught.value.code == ENHANCE_YOUR_CALM


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=300), st.text("cD\1", max_size=3000)), max_size=300))
@settings(max_examples=30, deadline=None)
def test_fields_are_counted_as_the_decoder_finds_them(fields: list[tuple[str, str]]) -> None:
    block = Encoder().encode(fields)
    decoder = HeaderBlockDecoder(lambda fields: len(fields), 10**6)
    if len(fields) > MAX_HEADER_FIELDS and len(block) > MAX_HEADER_FIELDS:
        with pytest.raises(ConnectionFault, match="too many fields"):
            decoder.decode(block)
    else:
        assert decoder.decode(block) == len(fields)


@pytest.mark.parametrize(
    "block", [b"\xff" + b"\xff" * 9000, b"\x00\x7f" + b"\x80" * 9000, b"\x00\x7f\xff\xff" + b"a" * 300]
)
def test_numbers_without_an_end_and_strings_beyond_the_block_cannot_be_decoded(block: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        HeaderBlockDecoder(read_request_headers, 65536).decode(block)
    assert caught.value.code == COMPRESSION_ERROR


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_a_fault(block: bytes) -> None:
    decoder = HeaderBlockDecoder(read_request_headers, 65536)
    try:
        decoder.decode(block)
        decoder.decode(block)
    except ConnectionFault:
        pass


@pytest.mark.parametrize(
    "fields",
    [
        REQUEST[:2],
        [*REQUEST, REQUEST[0]],
        [*REQUEST, (b":odd", b"1")],
        [(b"a", b"b"), *REQUEST],
        [*REQUEST, (b"Upper", b"1")],
        [*REQUEST, (b"connection", b"close")],
        [*REQUEST, (b"te", b"gzip")],
        [*REQUEST, (b"x", b"a\r\nb")],
        [*REQUEST, (b"", b"a")],
    ],
)
def test_malformed_requests_have_a_problem(fields) -> None:
    assert HeaderBlockDecoder(read_request_headers, 65536).decode(encode_block(fields)).problem


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.binary(max_size=300)), max_size=8))
def test_encoded_blocks_are_hpack_without_state(fields) -> None:
    decoder = Decoder(max_header_list_size=10**6)
    for _ in range(2):
        assert [tuple(field) for field in decoder.decode(encode_block(fields), raw=True)] == fields
    assert len(decoder.header_table.dynamic_entries) == 0


def test_statuses_are_encoded_by_the_static_table() -> None:
    for status in (b"200", b"404", b"415"):
        assert [tuple(f) for f in Decoder().decode(encode_block([(b":status", status)]), raw=True)] == [
            (b":status", status)
        ]
