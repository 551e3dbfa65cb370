"""Which sequence waits again so that another can run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trireme.llm.request import Sequence
from trireme.llm.turns.waiting_line import WaitingLine

_TURN_TOKENS: Final = 32
"""So many tokens a sequence writes, and a quarter of all it has, before it makes room for another request: what it had
in the cache may be gone when it comes back, and is computed again then."""


def one_of_most(running: Iterable[Sequence], line: WaitingLine) -> Sequence:
    """The last of the request of which most run: it is missed least."""
    return max(enumerate(running), key=lambda entry: (line.running_of_request(entry[1]), entry[0]))[1]


def who_gives_way(
    newcomer: Sequence, running: Iterable[Sequence], line: WaitingLine, missing_blocks: int, block_size: int
) -> Sequence | None:
    """One of several that run of a request, for one of a request of which nothing runs; None: nobody does, as where
    so many blocks would be missing even if all that may go had gone."""
    if newcomer.pending or newcomer.peers:
        return None
    may_go = [one for one in running if line.running_of_request(one) > 1 and _has_had_turn(one, newcomer)]
    if missing_blocks > sum(len(one.blocks) - one.cached // block_size for one in may_go):
        return None
    return one_of_most(may_go, line) if may_go else None


def _has_had_turn(sequence: Sequence, newcomer: Sequence) -> bool:
    """Beams come back together, when that many can run: they stay. One that is left out of steps, because its grammar
    is slow, would take long to write as much as others: it goes at once."""
    if sequence.peers or sequence.priority < newcomer.priority:
        return False
    if sequence.awaits_mask:
        return True
    size = len(sequence.tokens)
    return size - sequence.size_at_admission >= max(_TURN_TOKENS, size // 4)
