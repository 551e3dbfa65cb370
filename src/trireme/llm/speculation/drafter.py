"""The interface of what guesses next tokens."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Protocol

from trireme.llm.executors.port import WarmUp
from trireme.llm.request import Sequence


class Drafter(Protocol):
    """Guesses tokens; all calls but `is_preparing` come from the engine's thread."""

    @property
    def is_preparing(self) -> bool:
        """Whether something is made ready that may take longer than a step; read by other threads."""

    def warm_ups(self) -> Items[WarmUp]:
        """What it would otherwise make ready amid traffic."""

    def would_draft(self, sequence: Sequence) -> bool:
        """Whether it is likely to have a guess once the tokens under way are known."""

    def draft(self, wanted: Items[tuple[Sequence, int]]) -> list[tuple[int, ...]]:
        """For each of the sequences, all of whose tokens are known, at most so many next tokens; they stay as they are.

        What it knows of sequences from before, it keeps until it is told to forget them.
        """

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended."""

    def close(self) -> None:
        """Gives its memory back."""
