"""Regular expressions as Triton reads them, in RE2's language, as Python's `re` understands them.

What differs where only a match is asked for, not what matched: flags may change anywhere in an expression and be
switched off (`(?-i)`), `\\z` ends the text, `\\Q...\\E` quotes, and classes have names (`[[:alpha:]]`).
"""

from __future__ import annotations

import re

_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


def to_python(pattern: str) -> str:
    """The same expression for `re`; raises `re.error` where it is none."""
    translated = _Translation(pattern).run()
    re.compile(translated)
    return translated


class _Translation:
    """One walk along an expression. Flags hold from their place to the end of the group around them, across its
    alternatives, so each alternative of a group with flags is written as a group of its own."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        self._groups: list[list[str]] = [[]]
        """For each group that is open, the flags that were set in it, as the text that opens a group with them."""

    def run(self) -> str:
        while self._at < len(self._pattern):
            self._step(self._pattern[self._at])
        self._out.append(")" * len(self._groups[-1]))
        return "".join(self._out)

    def _step(self, char: str) -> None:
        if char == "\\":
            self._escape()
        elif char == "[":
            self._character_class()
        elif char == "(":
            self._open_group()
        elif char == ")" and len(self._groups) > 1:
            self._put(")" * len(self._groups.pop()) + ")", 1)
        elif char == "|":
            flags = self._groups[-1]
            self._put(")" * len(flags) + "|" + "".join(flags), 1)
        else:
            self._put(char, 1)

    def _open_group(self) -> None:
        match = _FLAGS.match(self._pattern, self._at)
        if match is None:
            self._groups.append([])
            self._put("(", 1)
            return
        if not match[1] and match[2] is None and match[3] == ")":
            raise re.error("missing argument to repetition operator", self._pattern, self._at)
        # Greediness (U) is about what matches, not about whether something does.
        on, off = (flags.replace("U", "") for flags in (match[1], match[2] or ""))
        opening = f"(?{on}{f'-{off}' if off else ''}:"
        if match[3] == ":":
            self._groups.append([])
        else:
            self._groups[-1].append(opening)
        self._put(opening, len(match[0]))

    def _escape(self) -> None:
        follows = self._pattern[self._at + 1 : self._at + 2]
        if follows == "Q":
            quoted, _, _ = self._pattern[self._at + 2 :].partition(r"\E")
            self._put(re.escape(quoted), len(quoted) + 4)
        elif follows == "z":
            self._put(r"\Z", 2)
        else:
            self._put("\\" + follows, 2)

    def _character_class(self) -> None:
        pattern, start = self._pattern, self._at
        end = start + 1
        if pattern[end : end + 1] == "^":
            end += 1
        if pattern[end : end + 1] == "]":  # the first one is a member
            end += 1
        members = [pattern[start:end]]
        while end < len(pattern) and pattern[end] != "]":
            named = re.compile(r"\[:(\w+):\]").match(pattern, end)
            if named is not None and named[1] in _NAMED_CLASSES:
                members.append(_NAMED_CLASSES[named[1]])
                end = named.end()
            elif pattern[end] == "\\":
                members.append(pattern[end : end + 2])
                end += 2
            else:
                members.append("\\[" if pattern[end] == "[" else pattern[end])
                end += 1
        self._put("".join(members) + pattern[end : end + 1], end + 1 - start)

    def _put(self, text: str, consumed: int) -> None:
        self._out.append(text)
        self._at += consumed
