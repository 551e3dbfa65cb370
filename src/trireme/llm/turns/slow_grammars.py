"""Those whose grammars are slow, where others wait: they have half of the slots, so that a slot does not stay with one
that is left out of most steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trireme.llm.request import Sequence


class SlowGrammarSequences:
    """They wait here beside the line, or they would be the first in it again."""

    def __init__(self, max_sequences: int) -> None:
        self._most = max(1, max_sequences // 2)
        """So many of those that run may be left out of steps while others wait."""
        self._waiting: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._waiting.values()

    def add(self, sequence: Sequence) -> None:
        """Lets one wait here."""
        self._waiting[sequence.sequence_id] = sequence

    def remove(self, sequence: Sequence) -> bool:
        """Takes one out; False where it does not wait here."""
        return self._waiting.pop(sequence.sequence_id, None) is not None

    def who_goes(self, running: Iterable[Sequence], newcomer: Sequence, free_slots: int) -> Sequence | None:
        """Of those that run, for one that finds no room: whose turn is the last. None: nobody goes, as for one that is
        slow itself, or for beams that would find too few slots if all had gone that may."""
        slow = _slow(running)
        may_go = len(slow) - self._most
        if newcomer.takes_turns or newcomer.pending or may_go <= 0 or len(newcomer.peers) > free_slots + may_go:
            return None
        known = [one for one in slow if not one.pending]  # of others a step still brings something
        if not known:
            return None
        found = max(known, key=lambda one: (one.priority, one.last_token, one.sequence_id))
        return found if found.priority >= newcomer.priority else None

    def who_returns(self, running: Iterable[Sequence], is_alone: bool) -> Sequence | None:
        """Who of them goes back into the line, where there is a slot; `is_alone`: nobody else waits for it."""
        if not self._waiting or (not is_alone and len(_slow(running)) >= self._most):
            return None
        return min(self._waiting.values(), key=lambda one: (one.priority, one.sequence_id))


def _slow(running: Iterable[Sequence]) -> list[Sequence]:
    return [one for one in running if one.takes_turns and not one.peers]
