"""A chunked body comes in any pieces; one that another reader could end elsewhere is refused as soon as it shows."""

from __future__ import annotations

import pytest

from trireme.core.errors import InvalidArgumentError
from trireme.protocol.http1.chunks import ChunkedDecoder

WHOLE = b"3\r\nabc\r\n2;x=y\r\n\r\n\r\n0\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("size", range(1, len(WHOLE) + 1))
def test_a_body_is_the_same_in_pieces_of_any_size(size: int) -> None:
    decoder = ChunkedDecoder(100)
    pieces = [WHOLE[start : start + size] for start in range(0, len(WHOLE), size)]
    assert [decoder.feed(piece) for piece in pieces] == [None] * (len(pieces) - 1) + [b""]
    assert decoder.body() == b"abc\r\n"


@pytest.mark.parametrize(
    ("begun", "text"),
    [
        (b"0\n\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"3\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"3\rabc", "chunk header or trailer has a bare line feed or carriage return"),
        (b"0\r\nA: b\n\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"0\r\n\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"0\r\n\n\r\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"1\r\n{\n", "chunk is not followed by a line end"),
        (b"1\r\n{\r{", "chunk is not followed by a line end"),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_a_line_that_ends_in_another_way_is_not_waited_for(begun: bytes, text: str, size: int) -> None:
    decoder = ChunkedDecoder(100)
    with pytest.raises(InvalidArgumentError, match=text):
        for start in range(0, len(begun), size):
            decoder.feed(begun[start : start + size])
