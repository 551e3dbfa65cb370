"""gRPC framing: messages in any chunking, compression with a bound, timeouts and status texts."""

from __future__ import annotations

import gzip
import urllib.parse
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.protocol import grpc_frames as grpc


def framed(message: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=6),
    st.lists(st.integers(1, 200), max_size=50),
    st.booleans(),
)
def test_messages_come_out_whole_whatever_the_chunks(messages, cuts, is_view) -> None:
    wire = b"".join(framed(message, int(flag)) for message, flag in messages)
    assembler = grpc.MessageAssembler()
    found = []
    position = 0
    for size in [*cuts, len(wire)]:
        chunk = wire[position : position + size]
        position += size
        if assembler.absorb(chunk):
            continue
        found += [(flag, bytes(m)) for flag, m in assembler.feed(memoryview(chunk) if is_view else chunk)]
    assert found == [(flag, message) for message, flag in messages]
    assert not assembler.is_midway


def test_a_large_message_is_copied_once_into_one_buffer() -> None:
    message = bytes(range(256)) * 4096
    wire = memoryview(framed(message))
    assembler = grpc.MessageAssembler()
    assert assembler.feed(wire[:100_000]) == []
    assert assembler.is_midway
    ((_, buffer),) = assembler.feed(wire[100_000:])
    assert bytes(buffer) == message


def test_a_message_inside_one_chunk_is_a_slice_of_it() -> None:
    chunk = memoryview(framed(b"x" * 10_000))
    ((_, message),) = grpc.MessageAssembler().feed(chunk)
    assert message.obj is chunk.obj


def test_an_announced_size_alone_costs_no_memory() -> None:
    assembler = grpc.MessageAssembler()
    assert assembler.feed(b"\0\x7f\xff\xff\xff" + b"x") == []


def test_messages_beyond_the_limit_and_odd_flags_are_refused() -> None:
    with pytest.raises(grpc.MessageFault) as caught:
        grpc.MessageAssembler(10).feed(framed(b"x" * 11))
    assert caught.value.status == grpc.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.MessageFault) as caught:
        grpc.MessageAssembler().feed(framed(b"x", 2))
    assert caught.value.status == grpc.INTERNAL


@given(st.lists(st.binary(max_size=500), max_size=4), st.sampled_from(["gzip", "deflate"]))
def test_compression_round_trips(pieces, encoding) -> None:
    packed = grpc.compress(list(pieces), encoding)
    assert grpc.decompress(packed, encoding, 10_000) == b"".join(pieces)
    assert (gzip.decompress if encoding == "gzip" else zlib.decompress)(packed) == b"".join(pieces)


def test_a_bomb_is_cut_off_at_the_limit() -> None:
    with pytest.raises(grpc.MessageFault) as caught:
        grpc.decompress(gzip.compress(bytes(10**7)), "gzip", 10**6)
    assert caught.value.status == grpc.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("damaged", [b"nonsense", gzip.compress(b"x" * 100, mtime=0)[:-9], b""])
def test_damaged_messages_are_refused(damaged) -> None:
    with pytest.raises(grpc.MessageFault):
        grpc.decompress(damaged, "gzip", 1000)


def test_a_compressed_message_without_a_named_compression_is_refused() -> None:
    with pytest.raises(grpc.MessageFault):
        grpc.decompress(b"x", "identity", 1000)


def test_a_message_that_does_not_shrink_is_sent_as_it_is() -> None:
    assert grpc.frame_message([b"ab"], 2, "gzip") == ([b"\0\0\0\0\x02", b"ab"], 7)
    pieces, size = grpc.frame_message([bytes(10_000)], 10_000, "gzip")
    assert pieces[0][0] == 1
    assert size == sum(map(len, pieces)) < 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9), (b"99999999m", 99999.999)],
)
def test_timeouts_have_units(text, seconds) -> None:
    assert grpc.parse_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"5", b"m", b"-1S", b"123456789S", b"1x", b"1.5S"])
def test_malformed_timeouts_are_none(text) -> None:
    assert grpc.parse_timeout(text) is None


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=200))
def test_status_texts_survive_percent_encoding(text) -> None:
    encoded = grpc.percent_encode(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert urllib.parse.unquote(encoded.decode()) == text


def test_halves_of_surrogate_pairs_are_replaced_in_status_texts() -> None:
    assert urllib.parse.unquote(grpc.percent_encode("a\ud800\udfff").decode()) == "a\ufffd\ufffd"
    assert grpc.percent_encode("\udcff") == b"%FF"


def test_status_texts_stay_below_what_clients_accept() -> None:
    assert len(grpc.percent_encode("\n" * 10_000)) < 7000
