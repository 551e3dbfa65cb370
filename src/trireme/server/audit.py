"""Audit lines: who had a model loaded or unloaded, or a setting changed, and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from trireme.access.actor import current_actor
from trireme.core.errors import ServingError
from trireme.observe.terminal.plain_text import one_line

log = logging.getLogger(__name__)


@contextmanager
def audited(action: str, subject: str) -> Iterator[None]:
    """Writes one line for what is done inside, when it is done or has failed."""
    actor = current_actor()
    try:
        yield
    except ServingError as error:
        log.warning("audit: %s: %s %s: failed: %s", actor, action, one_line(subject), one_line(error.message))
        raise
    except BaseException as error:
        log.warning("audit: %s: %s %s: failed: %s", actor, action, one_line(subject), type(error).__name__)
        raise
    log.info("audit: %s: %s %s: done", actor, action, one_line(subject))
