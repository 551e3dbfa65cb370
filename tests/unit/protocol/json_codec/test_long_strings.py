"""Long strings: read and written in pieces, whatever is in them, and in little more memory than they have."""

from __future__ import annotations

import codecs
import json
import random
import tracemalloc
from typing import Any

import pytest

from trireme.protocol.json_codec import reader, slices, tensor

ATOMS = ("a", "\n", "é", "€", "\U0001f600", '"', "\\", "/", "\\ud83d", "\x7f", "\x1f", "\ud7ff", "\ue000")


@pytest.mark.parametrize("is_ascii", [True, False])
def test_every_cut_between_two_pieces_gives_the_string(monkeypatch: pytest.MonkeyPatch, is_ascii: bool) -> None:
    source = random.Random(1)
    for size in range(1, 40):
        monkeypatch.setattr(reader, "_RUN_BYTES", size)
        wanted = "".join(source.choices(ATOMS, k=60))
        assert reader.read(json.dumps([wanted, {wanted: 1}], ensure_ascii=is_ascii).encode()) == [wanted, {wanted: 1}]


def test_bytes_that_are_no_text_are_kept_among_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 7, 1000):
        monkeypatch.setattr(reader, "_RUN_BYTES", size)
        assert reader.read(b'"\xff\\n\xf0\x9f\\u00e9\xed\xa0\x80x"') == b"\xff\n\xf0\x9f\xc3\xa9\xed\xa0\x80x".decode(
            "utf-8", "surrogateescape"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rb'"aaaa\ud83d"', "The surrogate pair in string is invalid. at 5"),
        (rb'"aaaa\ude00\ud83d"', "The surrogate pair in string is invalid. at 5"),
        (rb'"aaaa\ud83d\u0041"', "The surrogate pair in string is invalid. at 5"),
        (rb'"aaaa\u12"', "Incorrect hex digit after \\u escape in string. at 5"),
        (rb'"aaaa\x"', "Invalid escape character in string. at 5"),
        (b'"aaaa\n"', "Invalid escape character in string. at 5"),
        (b'"aaaa', "Missing a closing quotation mark in string. at 5"),
    ],
)
def test_errors_stand_where_they_are(text: bytes, message: str) -> None:
    with pytest.raises(reader.JsonSyntaxError) as caught:
        reader.read(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("escape", [b"\\u00e9", b"\\n", b"\\ud83d\\ude00"])
def test_escapes_cost_no_more_memory_than_their_text(escape: bytes) -> None:
    text = b'"%b"' % (escape * 200_000)
    tracemalloc.start()
    try:
        reader.read(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(text)


@pytest.mark.parametrize("sizes", [[9], [3, 20, 1], [0, 8, 0, 100], [8] * 5, [1] * 30, []])
@pytest.mark.parametrize("atom", [b"x", "é".encode(), b"\n", b"\xff\x01"])
def test_strings_are_written_in_pieces_as_they_are_at_once(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], atom: bytes
) -> None:
    elements = [atom * size for size in sizes]
    wanted = tensor.encode_text_list(elements)
    for module in (slices, tensor):
        monkeypatch.setattr(module, "TEXT_SLICE_BYTES", 8)
    assert tensor.encode_text_list(elements) == wanted


def test_no_piece_of_written_strings_is_long() -> None:
    elements = [b"x" * 100_000] * 9 + [b"y" * 1_000_000] + [b""] * 50_000
    groups = list(slices.slice_texts(elements))
    assert [element for group in groups for element in group] == elements
    assert all(len(group) <= slices.SLICE for group in groups)
    assert all(len(group) == 1 or sum(map(len, group)) <= slices.TEXT_SLICE_BYTES for group in groups)


def test_what_has_to_be_read_step_by_step_is_bounded_over_all_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_STEPS", 1000)
    slow = b'"\\u0041%b"' % (b"\xff\\n" * 300)
    assert len(reader.read(b"[%b]" % slow)) == 1
    for text in (
        b'"%b"' % (b"\xff\\n" * 1100),
        b"[%b]" % b",".join([slow] * 6),
        b"{%b:1,%b:2,%b:3,%b:4,%b:5}" % ((slow,) * 5),
    ):
        with pytest.raises(reader.JsonLimitError, match="more than 1000 members"):
            reader.read(text)


def test_bytes_that_are_no_text_are_decoded_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Decoder(codecs.getincrementaldecoder("utf-8")):  # type: ignore[misc]
        def decode(self, data: Any, final: bool = False) -> str:
            sizes.append(len(data))
            return str(super().decode(data, final))

    monkeypatch.setattr(slices, "getincrementaldecoder", lambda encoding: Decoder)
    raw = b"\xff" * 1_000_000 + b"\xf0\x9f\x98\x80" * 10
    for text in (b'"%b"' % raw, b'"\\n%b"' % raw):
        sizes.clear()
        assert reader.read(text).lstrip("\n").encode("utf-8", "surrogateescape") == raw
        assert sum(sizes) >= len(raw) - 10
        assert max(sizes) <= reader._RUN_BYTES


@pytest.mark.parametrize("text", ["x" * 30, "\udcff" * 30, "é\U0001f600\udcf0" * 10, ""])
def test_texts_are_encoded_piece_by_piece_as_they_are_at_once(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    wanted = text.encode("utf-8", "surrogateescape")
    for size in (1, 2, 7, 100):
        for module in (slices, tensor):
            monkeypatch.setattr(module, "TEXT_SLICE_BYTES", size)
        assert slices.encode_text(text) == wanted
        assert tensor.decode_elements("BYTES", [text], 1) == tensor.pack_string(wanted)


@pytest.mark.parametrize("number", [b"%b", b"-%b", b"0.%b", b"1e%b", b"%b.5"])
def test_numbers_without_end_are_not_read(number: bytes) -> None:
    assert "a" in reader.read(b'{"a":%b}' % (number % (b"1" * 2)))
    for text in (b'{"a":%b}' % number, b"[1,%b]" % number, number):
        with pytest.raises(reader.JsonLimitError, match="a number in the JSON text has more than 32768 digits"):
            reader.read(text % (b"1" * 40_000))


def test_names_without_end_are_not_taken() -> None:
    longest = b"k" * reader.MAX_NAME_CHARS
    assert len(reader.read(b'{"%b":1}' % longest)) == 1
    for character in (b"k", "é".encode(), b"\xff", b"\\u00e9"):
        with pytest.raises(reader.JsonLimitError, match="a name in the JSON text has more than 65536 characters"):
            reader.read(b'{"a":{"%b":1}}' % (character * (reader.MAX_NAME_CHARS + 1)))


@pytest.mark.parametrize("raw", [b"\xff", b"a\xff", b"\xed\xa0\x80"])
def test_a_string_has_a_limit_for_bytes_that_are_not_text(raw: bytes) -> None:
    few = raw * 100 + "é".encode() * 2_000_000
    scattered = (raw + b"a" * 40_000) * 40  # more than the limit in pieces that have some
    for text in (few, scattered):
        assert reader.read(b'["%b"]' % text)[0].encode("utf-8", "surrogateescape") == text
    with pytest.raises(reader.JsonLimitError, match="more than 1048576 bytes that are not UTF-8"):
        reader.read(b'{"a":"%b"}' % (raw * 1_100_000))


def test_spaces_are_passed_over_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 50):
        monkeypatch.setattr(reader, "_RUN_BYTES", size)
        assert reader.read(b"   [ \n\n\n 1 ,\t\t\t\t\t\t2 ]     ") == [1, 2]
