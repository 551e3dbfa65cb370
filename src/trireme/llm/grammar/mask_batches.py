"""Makes the masks of quick grammars together, in the library's threads: one after the other those of a large batch take
longer than the device computes, and each would wait for the interpreter anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import numpy as np

from trireme.llm.grammar.matching import THREADS, MatcherState, matcher_state
from trireme.llm.request import Sequence

_WORTH_S: Final = 0.0005
"""So long they take together at least, or waking threads is not worth it."""
_TOLERANCE: Final = 4
_TOLERANCE_S: Final = 0.002
"""What they may take beyond what they were thought to take; the machine may have been busy with something else."""


@cache
def _fill() -> Callable[[list[tuple[Any, int]], Any], None]:
    """Makes the masks of matchers, each in its row of a table."""
    executor = import_module("llguidance").LLExecutor(THREADS)
    return partial(import_module("llguidance.numpy").fill_next_token_bitmask_par, executor)


def make_masks(sequences: Iterable[Sequence], clock: Callable[[], float] = time.monotonic) -> None:
    """Of those that follow grammars which are known to be quick. Others make theirs when they are asked for them, and
    are measured at that; where all take longer than they should, the next ones are measured again."""
    states = [state for one in sequences if (state := _quick_one(one)) is not None]
    states.sort(key=lambda state: (id(state.grammar), state.number))  # threads take runs of what follows one another
    costs_s = [state.cost_s for state in states]
    if len(states) < 2 or THREADS < 2 or sum(costs_s) < _WORTH_S:
        return
    table = np.zeros((len(states), -(-states[0].grammar.vocab_size // 32)), np.int32)
    began_s = clock()
    _fill()([(state.matcher, row) for row, state in enumerate(states)], table)
    taken_s = clock() - began_s
    for state, bits in zip(states, table.view(np.uint8), strict=True):
        state.take_mask(bits)
    if taken_s > _TOLERANCE_S + _TOLERANCE * (sum(costs_s) / THREADS + max(costs_s)):
        for state in states:
            state.grammar.doubt()


def _quick_one(sequence: Sequence) -> MatcherState | None:
    state = matcher_state(sequence.grammar)
    return state if state is not None and state.makes_mask_quickly and not sequence.error else None
