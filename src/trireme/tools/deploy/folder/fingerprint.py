"""The last line of a file that was written for the user: it tells whether anybody has changed the file since."""

from __future__ import annotations

import hashlib
import re

_LINE = re.compile(r"^# fingerprint ([0-9a-f]{16}): .*\n", re.MULTILINE)
_MEANING = "'trireme deploy' may write this file anew as long as nobody has edited it"


def stamped(text: str) -> str:
    """The text with its fingerprint below, as a comment."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text}# fingerprint {digest}: {_MEANING}\n"


def is_untouched(text: str) -> bool:
    """Whether it is what was written, to the letter."""
    return stamped(_LINE.sub("", text)) == text


def has_same_origin(text: str, other: str) -> bool:
    """Whether both were the same when they were written, whatever has been edited since."""
    first, second = _LINE.search(text), _LINE.search(other)
    return first is not None and second is not None and first[1] == second[1]
