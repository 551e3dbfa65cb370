"""Every mistake in the text of a `config.pbtxt`, and what the rest of it says."""

from __future__ import annotations

import re
from typing import NamedTuple

from google.protobuf import text_format

from trireme.config.message import ConfigMessage, new_config, wrong_enums
from trireme.config.nearest import nearest
from trireme.config.text.pbtxt import described, names_for
from trireme.config.text.pbtxt_tokens import Position, Token, repaired, tokens
from trireme.config.validation.problem import Problem

_MOST = 50
"""So many are enough to know that something else was meant than a configuration."""


class Mistake(NamedTuple):
    line: int
    text: str
    entry: str
    """The outermost field that it is in; empty outside any."""


class ParsedText(NamedTuple):
    message: ConfigMessage | None
    """As if what is misspelt were spelt as it was probably meant, and the rest of what is wrong were not there; None
    where the text has no structure to go by."""
    mistakes: list[Mistake]
    problems: list[Problem]
    """Of a text that can be read: enum values given by a number that has no name."""


def read_all(text: str) -> ParsedText:
    """Reads on after a mistake. Lines are those of the text."""
    current, mistakes = repaired(text), list[Mistake]()
    while len(mistakes) < _MOST:
        message = new_config()
        try:
            text_format.Parse(current, message)
        except text_format.ParseError as error:
            position = Position(current, error.GetLine() or 1, error.GetColumn() or 1)
            entry = position.field_path().partition(".")[0]
            mistakes.append(Mistake(error.GetLine() or 1, described(error, current), entry))
            mended = _mended(error, current)
            if mended is None or mended == current:
                return ParsedText(None, mistakes, [])
            current = mended
            continue
        except (ValueError, RecursionError) as error:
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            return ParsedText(None, [*mistakes, Mistake(1, first_line, "")], [])
        problems = [Problem(said, path) for path, said in wrong_enums(message)]
        return ParsedText(None if problems else message, mistakes, problems)
    return ParsedText(None, mistakes, [])


def _mended(error: text_format.ParseError, text: str) -> str | None:
    """The text with the name that was probably meant, or without the field; None where no field is to blame."""
    offset = Position(text, error.GetLine() or 1, error.GetColumn() or 1).offset
    unknown, names = names_for(str(error))
    close = nearest(unknown.strip("\"'"), names) if names else None
    if close is not None and text[offset:].startswith(unknown):
        return text[:offset] + close + text[offset + len(unknown) :]
    if "Expected " in str(error) or "missing ending quote" in str(error):
        return None
    return _without_field(text, offset)


def _without_field(text: str, offset: int) -> str | None:
    found = tokens(text)
    index = next((number for number, token in enumerate(found) if token.start <= offset < _end(token)), None)
    if index is None:
        return None
    first = index
    while first > 0 and not _is_name(found, first):
        first -= 1
    if not _is_name(found, first):
        return None
    last = _last_of_value(found, first + 1)
    start, end = found[first].start, _end(found[last])
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def _is_name(found: list[Token], index: int) -> bool:
    after = found[index + 1] if index + 1 < len(found) else None
    return found[index].kind == "word" and after is not None and after.text in (":", "{", "<", "[")


def _last_of_value(found: list[Token], index: int) -> int:
    """The index of the last token of the value that begins there, a colon before it included."""
    if found[index].text == ":" and index + 1 < len(found):
        index += 1
    depth = 0
    for number in range(index, len(found)):
        depth += found[number].text in ("{", "<", "[")
        depth -= found[number].text in ("}", ">", "]")
        if depth <= 0 and found[number].text != "-":
            return number
    return len(found) - 1


def _end(token: Token) -> int:
    return token.start + len(token.text)
