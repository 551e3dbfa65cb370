"""One thing that is wrong with a configuration: what, at which field, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trireme.core.errors import InvalidArgumentError, ServingError


@dataclass(frozen=True, slots=True)
class Problem:
    """The checks yield these lazily, so that a load ends with the first and `trireme config check` shows them all."""

    text: str
    """Triton's sentence where it has one: it is what a load fails with."""
    place: str = ""
    """The field as `input[1].data_type` or `parameters['device']`; where it is missing, the field that lacks it."""
    advice: str = ""
    """What to do; empty where the text says it."""


def raise_first(problems: Iterable[Problem]) -> None:
    """Raises InvalidArgumentError with the first of them; nothing is looked for after it."""
    for problem in problems:
        raise InvalidArgumentError(problem.text)


@contextmanager
def collecting(problems: list[Problem], place: str = "", advice: str = "") -> Iterator[None]:
    """A check that raises becomes one that notes."""
    try:
        yield
    except ServingError as error:
        problems.append(Problem(error.message, place, advice))
