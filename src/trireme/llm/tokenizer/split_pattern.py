r"""Translates the split patterns of tokenizers into the standard library's `re`.

Those patterns are written for engines that know Unicode's categories (`\p{L}`); `re` does not, so each category becomes
a list of ranges. White space differs too: `re` counts U+001C to U+001F in, Unicode does not.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

from trireme.llm.tokenizer.port import TokenizerError

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What ByteLevel splits by on its own."""

_CATEGORIES = ("L", "M", "N", "P", "S", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No")
_WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_GREEDY_GROUP = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
"""The end of one that is repeated without a way back."""
_CAN_REPEAT_GREEDILY = sys.version_info >= (3, 11, 5)
"""Before that Python's `re` ends such groups in the wrong place."""
_PLAIN_ESCAPES = set("rntfv") | set("\\.[](){}*+?|^$-/'\"")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern for `re`. Raises TokenizerError where it uses something whose meaning differs or is unknown."""
    pieces: list[str] = []
    position = 0
    is_class = False
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            piece, position = _escape(pattern, position, is_class)
            pieces.append(piece)
            continue
        if (char == "[" and is_class) or pattern.startswith("&&", position):
            raise _unknown(pattern, "a class inside a class")
        if not is_class and not _CAN_REPEAT_GREEDILY and (found := _GREEDY_GROUP.match(pattern, position)):
            raise _unknown(pattern, f"{found.group()}, which Python matches rightly from 3.11.5 on")
        if char in "$.^" and not is_class and not pattern.startswith("[^", position - 1):
            raise _unknown(pattern, char)
        is_class = (is_class or char == "[") and char != "]"
        pieces.append(char)
        position += 1
    try:
        return re.compile("".join(pieces))
    except re.error as error:
        raise _unknown(pattern, str(error)) from error


def _escape(pattern: str, position: int, is_class: bool) -> tuple[str, int]:
    """What the escape at that place becomes, and where it ends."""
    found = re.compile(r"\\([pP])\{(\w+)\}").match(pattern, position)
    if found:
        kind, name = found.groups()
        if name not in _CATEGORIES or (kind == "P" and is_class):
            raise _unknown(pattern, found.group())
        return _class(_ranges()[name], is_class, kind == "P"), found.end()
    letter = pattern[position + 1 : position + 2]
    if letter in ("s", "S") and not (letter == "S" and is_class):
        return _class(_WHITE_SPACE, is_class, letter == "S"), position + 2
    if letter == "d":
        return _class(_ranges()["Nd"], is_class, False), position + 2
    if letter in _PLAIN_ESCAPES:
        return f"\\{letter}", position + 2
    raise _unknown(pattern, f"\\{letter}")


def _class(body: str, is_class: bool, is_negated: bool) -> str:
    if is_class:
        return body
    return f"[^{body}]" if is_negated else f"[{body}]"


@functools.cache
def _ranges() -> dict[str, str]:
    """By category: the body of its class."""
    members: dict[str, list[list[int]]] = {name: [] for name in _CATEGORIES}
    assigned = (range(0xD800), range(0xE000, 0x33480), range(0xE0000, 0xE1000))
    for code in (code for part in assigned for code in part):
        category = unicodedata.category(chr(code))
        for name in (category, category[0]):
            runs = members.get(name)
            if runs is None:
                continue
            if runs and runs[-1][1] == code - 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
    return {name: "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in runs) for name, runs in members.items()}


def _unknown(pattern: str, what: str) -> TokenizerError:
    return TokenizerError(f"the tokenizer splits text by the pattern {pattern!r}, and {what} in it is not covered")
