"""Audit lines: who had a model loaded or unloaded, or a setting changed, and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from trireme.access.actor import current_actor
from trireme.core.errors import ServingError

log = logging.getLogger(__name__)


@contextmanager
def audited(action: str, subject: str) -> Iterator[None]:
    """Writes one line for what is done inside, when it is done or has failed."""
    actor = current_actor()
    try:
        yield
    except ServingError as error:
        log.warning("audit: %s: %s %s: failed: %s", actor, action, _plain(subject), _plain(error.message))
        raise
    except BaseException as error:
        log.warning("audit: %s: %s %s: failed: %s", actor, action, _plain(subject), type(error).__name__)
        raise
    log.info("audit: %s: %s %s: done", actor, action, _plain(subject))


def _plain(text: str) -> str:
    """On one line, whatever a client has written."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
