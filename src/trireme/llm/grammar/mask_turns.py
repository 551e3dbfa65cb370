"""Whose grammar is asked for the next step, where all of them would take long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from trireme.llm.grammar.matching import QUICK_S, THREADS
from trireme.llm.request import Sequence

_STEP_S: Final = 0.05
"""What slow grammars may take in each step, for masks and to hear of tokens, and quick ones as much."""


class MaskTurns:
    """Leaves sequences out of a step in which the grammars of others take their time.

    Masks of slow grammars are made before the step is planned, one after the other. Those of quick ones are made within
    it, together, while the device computes, and where the executor chooses tokens later, for those too whose last token
    the device has not told yet. What a grammar takes to hear of the token that the step brings comes behind it, in this
    thread: as long as it has taken last, for it cannot be known before.
    """

    def __init__(
        self, vocab_size: int, chooses_later: bool = False, clock: Callable[[], float] = time.thread_time
    ) -> None:
        """`clock`: what the thread has worked, in seconds."""
        self._vocab_size = vocab_size
        self._chooses_later = chooses_later
        self._clock = clock

    def prepare(self, running: Iterable[Sequence]) -> None:
        """For those that may be in the next step, in the order of their priorities, and who has waited longest for a
        token first. At least one of them is in it."""
        bound: list[tuple[int, float, int, Sequence, float, float]] = []
        for sequence in running:
            if sequence.grammar is not None:
                advance_s, cost_s = sequence.grammar.advance_s, sequence.grammar.later_cost_s
                sequence.may_have_slow_grammar = max(cost_s, advance_s) > QUICK_S
                if not sequence.pending:
                    cost_s = sequence.grammar.cost_s
                elif sequence.may_have_slow_grammar or not self._chooses_later:
                    continue
                sequence.awaits_mask = cost_s > 0 or advance_s > 0
                if sequence.awaits_mask:
                    bound.append((sequence.priority, sequence.last_token, len(bound), sequence, cost_s, advance_s))
        left_s = quick_left_s = _STEP_S
        slow: list[Sequence] = []
        for *_, sequence, cost_s, advance_s in sorted(bound):
            if max(cost_s, advance_s) <= QUICK_S:
                sequence.awaits_mask = sequence.takes_turns = quick_left_s <= 0
                quick_left_s -= cost_s / THREADS + advance_s
                continue
            slow.append(sequence)
            if left_s > 0:
                sequence.awaits_mask = False
                began_s = self._clock()
                sequence.make_mask(self._vocab_size)
                left_s -= self._clock() - began_s + advance_s
        for sequence in slow:  # the one whose turn it is, too; those with a token under way keep what was found before
            sequence.takes_turns = left_s <= 0
