"""What every task's runner does, and how a batch of items goes through it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from trireme.backends.transformers.items import ClientsLeftError, Item, Outputs


class UnrepeatableError(Exception):
    """A group failed after clients had been sent a part of their answers: to run it again would repeat that part."""


class Runner(Protocol):
    """One task of one loaded model."""

    def prepare(self, item: Item) -> Any:
        """What the model needs for this item; raises RequestError where the item is wrong."""

    def key(self, prepared: Any) -> Hashable:
        """Items of equal keys can run together."""

    def run(self, prepared: Sequence[Any]) -> list[Outputs]:
        """The outputs beside what was prepared, in one forward; keys are equal."""


def run_items(runner: Runner, items: Sequence[Item]) -> list[Outputs | Exception]:
    """The outputs beside the items, or why there are none. Where a group fails, each of it runs alone, so that only
    those that cannot succeed get the error."""
    answers: list[Outputs | Exception] = [_UNANSWERED] * len(items)
    groups: dict[Hashable, list[tuple[int, Any]]] = {}
    for index, item in enumerate(items):
        try:
            prepared = runner.prepare(item)
            groups.setdefault(runner.key(prepared), []).append((index, prepared))
        except Exception as error:
            answers[index] = error
    for members in groups.values():
        for (index, _), answer in zip(members, _run_group(runner, members), strict=True):
            answers[index] = answer
    return answers


def check_clients(items: Sequence[Item]) -> None:
    """Between the forwards of a run that takes many: raises ClientsLeftError where all have left."""
    if all(item.is_cancelled() for item in items):
        raise ClientsLeftError("the request was cancelled")


def _run_group(runner: Runner, members: Sequence[tuple[int, Any]]) -> Sequence[Outputs | Exception]:
    try:
        return runner.run([prepared for _, prepared in members])
    except Exception as error:
        if len(members) == 1 or isinstance(error, UnrepeatableError):
            return [error] * len(members)
        return [_run_group(runner, [member])[0] for member in members]


_UNANSWERED = RuntimeError("the item was not run")
