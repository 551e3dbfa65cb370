"""Forms in several parts: what curl and browsers send, and what is no form."""

from __future__ import annotations

import pytest

from trireme.core.errors import InvalidArgumentError
from trireme.protocol.http1.multipart import MAX_PARTS, boundary_of, parse_form


def form(*parts: bytes, end: bytes = b"--XX--\r\n") -> bytes:
    return b"".join(b"--XX\r\n" + part + b"\r\n" for part in parts) + end


def field(name: str, content: bytes, more: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content


def test_fields_and_files_are_told_apart_and_contents_kept_byte_for_byte() -> None:
    content = bytes(range(256)) + b"\r\n--X\r\n\r\n"
    body = form(
        b'Content-Disposition: form-data; name="image"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n' + content,
        field("words", b"five"),
        field("empty", b""),
    )
    image, words, empty = parse_form(b"to be ignored\r\n" + body, b"XX")
    assert (image.name, image.file_name, image.media_type) == ("image", "a.jpg", "image/jpeg")
    assert (bytes(image.content), image.is_file) == (content, True)
    assert (words.name, bytes(words.content), words.is_file) == ("words", b"five", False)
    assert bytes(empty.content) == b""


def test_quotes_in_names_are_read_as_curl_and_browsers_write_them() -> None:
    first, second = parse_form(form(field(r"a\"b", b""), field("a%22b", b"")), b"XX")
    assert first.name == second.name == 'a"b'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("multipart/form-data; boundary=----abc", b"----abc"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', b"a b"),
        ("multipart/form-data", b""),
        ("multipart/mixed; boundary=x", None),
        ("application/json", None),
    ],
)
def test_the_header_tells_the_boundary(value: str, expected: bytes | None) -> None:
    assert boundary_of(value) == expected


@pytest.mark.parametrize(
    ("body", "boundary", "words"),
    [
        (b"{}", b"XX", "does not begin with the boundary"),
        (form(field("a", b"1"), end=b""), b"XX", "no boundary follows"),
        (b"--XX\r\nContent-Disposition: form-data", b"XX", "no end of its headers"),
        (form(b"Content-Type: text/plain\r\n\r\n1"), b"XX", "no Content-Disposition with a name"),
        (form(field("a", b"1")), b"", "no boundary of 1 to 70"),
        (form(field("a", b"1")), b"X" * 71, "no boundary of 1 to 70"),
        (form(*[field("a", b"1")] * (MAX_PARTS + 1)), b"XX", f"more than {MAX_PARTS} fields"),
        (b"--XX\r\nA: " + b"x" * 10_000 + b"\r\n\r\n", b"XX", "no end of its headers"),
    ],
)
def test_what_is_no_form_is_refused_with_words(body: bytes, boundary: bytes, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        parse_form(body, boundary)


def test_no_body_breaks_the_reader() -> None:
    whole = form(field("a", b"1"), field("b", b"2", '; filename="f"'))
    for length in range(len(whole)):
        try:
            parse_form(whole[:length], b"XX")
        except InvalidArgumentError:
            continue
        assert whole[:length].rstrip(b"\r").endswith(b"--XX--")
