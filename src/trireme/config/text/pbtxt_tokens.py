"""The tokens of a text-format file: where each field stands, unfilled placeholders, and small spelling repairs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    |(?P<comment>\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
    |(?P<placeholder>\$\{[^}\n]*\}?)
    |(?P<word>[A-Za-z0-9_.]+)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_SEPARATORS = ",;"
_OPENING = "{<["
_AFTER_NAME = (":", *_OPENING)
_BOOLEANS = {"TRUE": "true", "FALSE": "false"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token that means something: neither blank nor comment."""

    kind: str
    text: str
    start: int


def tokens(text: str) -> list[Token]:
    return [
        Token(match.lastgroup or "mark", match.group(), match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup not in ("blank", "comment")
    ]


def repaired(text: str) -> str:
    """The text with the spellings protobuf refuses made plain; every character keeps its line and column.

    Separators with nothing to separate become blanks (`[1, 2,]`), a sign moves to its number (`- 1`), `TRUE` becomes
    `true`, and a byte-order mark disappears. Strings and comments stay as they are.
    """
    letters = list(text)
    if text.startswith("\ufeff"):
        letters[0] = " "
    for start, replacement in _repairs(tokens(text)):
        letters[start : start + len(replacement)] = replacement
    return "".join(letters)


def _repairs(found: list[Token]) -> Iterator[tuple[int, str]]:
    before = Token("mark", "{", 0)
    for index, token in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        if token.kind == "mark" and token.text in _SEPARATORS:
            if before.text in (*_OPENING, *_SEPARATORS) or (after is not None and after.text == "]"):
                yield token.start, " "
        elif token.text == "-" and after is not None and after.kind == "word" and after.start > token.start + 1:
            yield token.start, " "
            yield after.start - 1, "-"
        elif token.text in _BOOLEANS and before.text in (":", "[", ","):
            yield token.start, _BOOLEANS[token.text]
        before = token


class Position:
    """Turns protobuf's line and column into what stands there."""

    def __init__(self, text: str, line: int, column: int) -> None:
        starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.offset = starts[min(max(line, 1), len(starts)) - 1] + max(column, 1) - 1
        self._tokens = tokens(text)
        last = bisect_right([token.start for token in self._tokens], self.offset)
        self._before = self._tokens[:last]

    def field_path(self) -> str:
        """The field at the position with the fields around it: `input.data_type`; empty outside any field."""
        stack: list[str] = []
        current = ""
        for index, token in enumerate(self._before):
            after = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
            if token.kind == "word" and after is not None and (after.text in _AFTER_NAME or after.kind == "text"):
                current = token.text
            elif token.text in ("{", "<"):
                stack.append(current)
                current = ""
            elif token.text in ("}", ">") and stack:
                current = stack.pop()
        return ".".join(name for name in (*stack, current) if name)

    def placeholder(self) -> str | None:
        """The unquoted `${name}` at the position, or the first one before it."""
        found = [token.text for token in self._before if token.kind == "placeholder"]
        return found[-1] if found else None
