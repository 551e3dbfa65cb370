"""A batch in which something fails: who is run again, and who is not."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.runner import UnrepeatableError, run_items


class Breaking:
    """Fails as long as "bad" is among what it runs."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.runs: list[list[str]] = []

    def prepare(self, item: Item) -> str:
        return item.text("text")

    def key(self, prepared: str) -> Hashable:
        return None

    def run(self, prepared: Sequence[Any]) -> list[Outputs]:
        self.runs.append(list(prepared))
        if "bad" in prepared:
            raise self.error
        return [{"text": np.array([text])} for text in prepared]


def items(*texts: str) -> list[Item]:
    return [Item({"text": text}, {}, lambda: False) for text in texts]


def test_members_of_a_failed_group_run_alone() -> None:
    runner = Breaking(RuntimeError("out of memory"))
    first, second = run_items(runner, items("good", "bad"))
    assert not isinstance(first, Exception)
    assert second is runner.error
    assert runner.runs == [["good", "bad"], ["good"], ["bad"]]


def test_what_clients_have_read_a_part_of_is_not_run_again() -> None:
    runner = Breaking(UnrepeatableError("the generation broke off"))
    assert run_items(runner, items("good", "bad")) == [runner.error, runner.error]
    assert runner.runs == [["good", "bad"]]
