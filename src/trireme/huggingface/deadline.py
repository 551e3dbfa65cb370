"""Calls that must not take longer than somebody is ready to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(limit_s: float, call: Callable[[], T]) -> T:
    """What the call returns or raises; TimeoutError where it takes longer, and its thread is left behind. For libraries
    whose own limits count each address of a name and each step of a connection anew."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return results[0]
