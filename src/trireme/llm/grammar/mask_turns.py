"""Whose mask is made for the next step, where all of them would take long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from trireme.llm.grammar.matching import QUICK_S, THREADS
from trireme.llm.request import Sequence

_STEP_S: Final = 0.05
"""What masks of slow grammars may take in each step, and those of quick ones as much: everybody waits for them."""


class MaskTurns:
    """Leaves sequences out of a step in which the masks of others take their time.

    Those of slow grammars are made before the step is planned, one after the other. Those of quick ones are made within
    it, together, while the device computes.
    """

    def __init__(self, vocab_size: int, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock`: what the thread has worked, in seconds."""
        self._vocab_size = vocab_size
        self._clock = clock

    def prepare(self, running: Iterable[Sequence]) -> None:
        """For those that have no token under way, in the order of their priorities, and who has waited longest for one
        first. At least one of them is in the next step."""
        bound: list[tuple[int, float, int, Sequence, float]] = []
        for sequence in running:
            if sequence.grammar is not None and not sequence.pending:
                cost_s = sequence.grammar.cost_s
                sequence.awaits_mask = cost_s > 0
                if sequence.awaits_mask:
                    bound.append((sequence.priority, sequence.last_token, len(bound), sequence, cost_s))
        left_s = quick_left_s = _STEP_S
        for *_, sequence, cost_s in sorted(bound):
            if cost_s <= QUICK_S:
                sequence.awaits_mask = quick_left_s <= 0
                quick_left_s -= cost_s / THREADS
            elif left_s > 0:
                sequence.awaits_mask = False
                began_s = self._clock()
                sequence.make_mask(self._vocab_size)
                left_s -= self._clock() - began_s
