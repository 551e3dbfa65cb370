"""Which changes the process was asked for, and whether it may rescue: read when needed, as a model may change it."""

from __future__ import annotations

import os

from trireme.backends.python.compat import VARIABLE

OFF = "off"


def is_asked_for(*words: str) -> bool:
    """Whether one of the words holds for this model."""
    return not _words().isdisjoint(words)


def may_rescue() -> bool:
    """Whether what fails for a known reason may be made to work, which is so unless somebody says `off`."""
    return OFF not in _words()


def _words() -> set[str]:
    return {word.strip() for word in os.environ.get(VARIABLE, "").split(",")}
