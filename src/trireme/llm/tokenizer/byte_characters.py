"""The printable characters in which byte-level vocabularies write the 256 bytes."""

from __future__ import annotations


def _table() -> list[str]:
    """Bytes that print stand for themselves; the others take the characters from U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


BYTE_TO_CHAR = _table()
CHAR_TO_BYTE = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}


def text_bytes(token: str) -> bytes:
    """The bytes of a token; one with a character that stands for no byte (an added token) is taken as it is."""
    try:
        return bytes([CHAR_TO_BYTE[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")
