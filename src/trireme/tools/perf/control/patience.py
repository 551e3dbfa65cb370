"""A server that takes its time with a question: said while it does, and when it has taken too long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trireme.tools.perf.errors import PerfError

ANSWER_S: Final = 60.0
"""How long a question may take."""
_QUIET_S: Final = 3.0


@contextmanager
def awaiting(authority: str, question: str) -> Iterator[None]:
    """Within it a question is asked; a TimeoutError becomes a PerfError that says what it was."""
    note = f"Waiting for {authority}, which has not answered {question} yet; {ANSWER_S:.0f} s at most."
    timer = threading.Timer(_QUIET_S, lambda: print(note, file=sys.stderr, flush=True))
    timer.daemon = True
    try:
        timer.start()
        yield
    except TimeoutError:
        raise PerfError(
            f"the server at {authority} takes connections, but has not answered {question} within {ANSWER_S:.0f} s"
        ) from None
    finally:
        timer.cancel()
        if timer.is_alive():  # not where a signal has come between
            timer.join()  # a load is forked later, which threads would disturb


@contextmanager
def connecting(authority: str) -> Iterator[None]:
    """Within it a connection is made; a TimeoutError becomes a PerfError that says so."""
    try:
        yield
    except TimeoutError:
        raise PerfError(
            f"no connection to {authority} within {ANSWER_S:.0f} s: nobody takes it; is the address right, and no "
            "firewall between?"
        ) from None
