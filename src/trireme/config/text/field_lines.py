"""Where the fields of a text-format file stand: the line of `input[1].data_type`, or of `parameters['device']`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from trireme.config.text.pbtxt_tokens import Token, tokens

_LAST_PART = re.compile(r"(\.\w+|\[[^\]]*\])$")
_OPENING = ("{", "<")
_CLOSING = ("}", ">")
_MOST_DEEP = 8
"""No field of a configuration is inside of more messages; each of them doubles the ways to name a field."""


def line_of(place: str, lines: Mapping[str, int]) -> int | None:
    """The line of a field, or of the nearest field around it; None where not even that is in the file."""
    while place:
        if place in lines:
            return lines[place]
        place = _LAST_PART.sub("", place) if _LAST_PART.search(place) else ""
    return None


def field_lines(text: str) -> dict[str, int]:
    """The line of every field by its path. A field that comes once has a path with and one without an index."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    walk = _Walk(tokens(text), starts)
    walk.fields([""])
    return walk.lines


class _Walk:
    def __init__(self, found: Sequence[Token], line_starts: Sequence[int]) -> None:
        self.lines: dict[str, int] = {}
        self._tokens = found
        self._starts = line_starts
        self._at = 0

    def fields(self, prefixes: list[str], depth: int = 0) -> None:
        """Those of one message, up to its end; `prefixes` are the ways to name it."""
        if depth > _MOST_DEEP:
            self._skip_message()
            return
        counts: dict[str, int] = {}
        while (token := self._next()) is not None and token.text not in _CLOSING:
            if token.kind == "word":
                self._field(token, prefixes, counts, depth)

    def _field(self, name: Token, prefixes: list[str], counts: dict[str, int], depth: int) -> None:
        self._skip(":")
        value = self._peek()
        if value is None:
            return
        if value.text == "[":
            self._at += 1
            self._note(name.start, [f"{prefix}{name.text}" for prefix in prefixes])
            while (item := self._next()) is not None and item.text != "]":
                if item.text in _OPENING:
                    self.fields(self._entry(item.start, name.text, prefixes, counts), depth + 1)
        elif value.text in _OPENING:
            self._at += 1
            self.fields(self._entry(name.start, name.text, prefixes, counts), depth + 1)
        else:
            self._at += 1
            self._entry(name.start, name.text, prefixes, counts)
            if name.text == "key" and counts["key"] == 1:
                self._note_key(name.start, value.text.strip("\"'"), prefixes)

    def _entry(self, start: int, name: str, prefixes: list[str], counts: dict[str, int]) -> list[str]:
        index = counts.get(name, 0)
        counts[name] = index + 1
        places = [f"{prefix}{name}[{index}]" for prefix in prefixes]
        if index == 0:
            places += [f"{prefix}{name}" for prefix in prefixes]
        self._note(start, places)
        return [f"{place}." for place in places]

    def _note_key(self, start: int, key: str, prefixes: list[str]) -> None:
        """A map's entry goes by its key."""
        for prefix in list(prefixes):
            place = re.sub(r"\[\d+\]$", "", prefix[:-1]) + f"['{key}']"
            self._note(start, [place])
            prefixes.append(f"{place}.")

    def _note(self, start: int, places: list[str]) -> None:
        line = bisect_right(self._starts, start)
        for place in places:
            self.lines.setdefault(place, line)

    def _skip_message(self) -> None:
        depth = 1
        while depth and (token := self._next()) is not None:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> Token | None:
        token = self._peek()
        self._at += 1
        return token

    def _skip(self, text: str) -> None:
        token = self._peek()
        if token is not None and token.text == text:
            self._at += 1
