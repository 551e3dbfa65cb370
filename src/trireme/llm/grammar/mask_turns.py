"""Whose mask is made for the next step, where those of slow grammars would take long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from trireme.llm.request import Sequence

_QUICK_S: Final = 0.002
_STEP_S: Final = 0.05
"""Masks that take longer than the one may take the other together in each step: everybody's tokens wait for them."""


class MaskTurns:
    """Makes masks of slow grammars before a step is planned; whose mask is not made is left out of the step.

    Those of quick ones are made within the step, while the device computes.
    """

    def __init__(self, vocab_size: int, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock`: what the thread has worked, in seconds."""
        self._vocab_size = vocab_size
        self._clock = clock

    def prepare(self, running: Iterable[Sequence]) -> None:
        """For those that have no token under way, who has waited longest for one first. At least one of them is in the
        next step."""
        slow = []
        for sequence in running:
            if sequence.grammar is not None and not sequence.pending:
                sequence.awaits_mask = sequence.grammar.cost_s > _QUICK_S
                if sequence.awaits_mask:
                    slow.append(sequence)
        left_s = _STEP_S
        for sequence in sorted(slow, key=lambda one: one.last_token):
            if left_s <= 0:
                return
            sequence.awaits_mask = False
            began_s = self._clock()
            sequence.make_mask(self._vocab_size)
            taken_s = self._clock() - began_s
            if taken_s > _QUICK_S:
                left_s -= taken_s
