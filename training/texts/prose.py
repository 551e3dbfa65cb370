"""Turns the texts of packages into clean passages: one paragraph a line, no line breaks of printed pages."""

from __future__ import annotations

import re
import struct
import zlib

_QUOTES = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-", "\ufeff": ""}
)
_PASSAGE_CHARS = 1500
"""About how long a passage is that the model sees as one document."""


def clean(text: str) -> str:
    """Plain quotes and line ends, whoever typed the text."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_QUOTES)


def unwrapped(text: str) -> list[str]:
    """Paragraphs of prose, each on one line."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", clean(text)))
    return [paragraph for paragraph in paragraphs if paragraph]


def verses(text: str) -> list[str]:
    """Paragraphs whose lines are kept: plays and poems."""
    lines = "\n".join(line.strip() for line in clean(text).split("\n"))
    return [paragraph.strip() for paragraph in re.split(r"\n{2,}", lines) if paragraph.strip()]


def passages(paragraphs: list[str], separator: str = "\n") -> list[str]:
    """Neighbouring paragraphs put together to passages of about equal size; paragraphs that are longer are split."""
    found: list[str] = []
    current = ""
    for paragraph in (piece for whole in paragraphs for piece in _pieces(whole)):
        if current and len(current) + len(paragraph) > _PASSAGE_CHARS:
            found.append(current)
            current = ""
        current = f"{current}{separator}{paragraph}" if current else paragraph
    return [*found, current] if current else found


def _pieces(paragraph: str) -> list[str]:
    if len(paragraph) <= _PASSAGE_CHARS:
        return [paragraph]
    pieces = [""]
    for sentence in re.split(r"(?<=[.!?]) ", paragraph):
        if pieces[-1] and len(pieces[-1]) + len(sentence) > _PASSAGE_CHARS:
            pieces.append("")
        pieces[-1] = f"{pieces[-1]} {sentence}".strip()
    return pieces


def gutenberg_body(text: str) -> str:
    """The book between the lines with which Project Gutenberg frames it, where they are there."""
    text = clean(text)
    begin = re.search(r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*", text)
    end = re.search(r"\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG|^End of (?:the )?Project Gutenberg", text, re.M)
    return text[begin.end() if begin else 0 : end.start() if end else len(text)]


def r_strings(database: bytes) -> list[list[str]]:
    """The character vectors of an R package's data file (`Rdata.rdb`), one list for each object."""
    objects = []
    position = 0
    while position < len(database):
        stream = zlib.decompressobj()
        content = stream.decompress(database[position + 4 :])
        position = len(database) - len(stream.unused_data)
        objects.append(_character_vector(content))
    return objects


def _character_vector(content: bytes) -> list[str]:
    """Reads a serialized character vector: after its head, for each string four bytes of flags and four of length."""
    at = 14 + 4 + struct.unpack_from(">i", content, 14)[0]
    kind, count = struct.unpack_from(">ii", content, at)
    if kind & 0xFF != 16:
        return []
    at += 8
    lines = []
    for _ in range(count):
        size = struct.unpack_from(">i", content, at + 4)[0]
        at += 8
        lines.append(content[at : at + max(size, 0)].decode("utf-8"))
        at += max(size, 0)
    return lines
