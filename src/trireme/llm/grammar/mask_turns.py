"""Whose mask is made for the next step, where those of all sequences would take long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from trireme.llm.request import Sequence

_QUICK_S: Final = 0.002
_STEP_S: Final = 0.05
"""Masks that take longer than the one may take the other together in each step: everybody's tokens wait for them."""


class MaskTurns:
    """Makes masks before a step is planned; a sequence whose mask is not made is left out of the step."""

    def __init__(self, vocab_size: int, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock`: what the thread has worked, in seconds."""
        self._vocab_size = vocab_size
        self._clock = clock

    def prepare(self, running: Iterable[Sequence]) -> None:
        """For those that have no token under way: the ones whose grammar was quick so far come first, then who has
        waited longest for a token. At least one of them is in the next step."""
        wanting = [one for one in running if one.grammar is not None and not one.pending]
        if len(wanting) > 1:
            wanting.sort(key=lambda one: (one.grammar_cost_s, one.last_token))
        left_s = _STEP_S
        for sequence in wanting:
            sequence.awaits_mask = left_s <= 0
            if sequence.awaits_mask:
                continue
            began_s = self._clock()
            sequence.make_mask(self._vocab_size)
            taken_s = self._clock() - began_s
            if taken_s > _QUICK_S:
                left_s -= taken_s
