"""Who asks for what is being done, for the audit lines of those who do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_ACTOR: Final[ContextVar[str]] = ContextVar("actor", default="the server itself or one of its models")


def current_actor() -> str:
    """In the words of an audit line."""
    return _ACTOR.get()


@contextmanager
def acting(actor: str) -> Iterator[None]:
    """What is done inside, and by tasks that begin inside, is done for this one."""
    token = _ACTOR.set(actor)
    try:
        yield
    finally:
        _ACTOR.reset(token)
