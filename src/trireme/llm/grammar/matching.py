"""How far the tokens of a sequence have come in a grammar, and which may come next."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from trireme.llm.grammar.reasons import short_reason
from trireme.llm.grammar.token_bits import TokenBits, every_token, fitted, with_token, without
from trireme.llm.sampling_params import Grammar, GrammarState

THREADS: Final = min(8, os.cpu_count() or 1)
"""In so many masks of quick grammars are made together."""
_PER_MATCHER: Final = 4
"""So many sequences follow each of the library's matchers before there is one more: its copies wait for each other."""
QUICK_S: Final = 0.002
"""Masks that take longer are those of slow grammars."""
_KNOWN: Final = 8
"""After so many tokens it is known what a grammar's masks take."""
_TOKEN_S: Final = 0.02
_OWN_S: Final = 0.25
"""What a grammar may take of the thread that runs everybody's steps: so much for each token, and that beyond it.
Grammars that people write take a millisecond, those that can be read in many ways take more with every token."""
_FADING: Final = 0.9
"""What is left of a mask's time, as an estimate of later ones, with each that takes less."""
_SPARE_S: Final = 2.0
_SPARE_SHARE: Final = 0.1
"""What all grammars of a model may take beyond that: so much, which comes back with this share of the time."""


class GrammarTimeBudget:
    """What slow grammars may take together, however many there are and however many sequences follow them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_s = _SPARE_S
        self._seen_s = clock()

    def take(self, seconds: float) -> bool:
        """Whether there was so much left."""
        now_s = self._clock()
        self._left_s = min(self._left_s + _SPARE_SHARE * (now_s - self._seen_s), _SPARE_S)
        self._seen_s = now_s
        is_enough = seconds <= self._left_s
        self._left_s = max(self._left_s - seconds, 0.0)
        return is_enough


class CompiledGrammar:
    """Many sequences share it, and what time it may take."""

    def __init__(
        self,
        matcher: Any,
        option: str,
        spare: GrammarTimeBudget,
        clock: Callable[[], float] = time.thread_time,
        size_bytes: int = 0,
        vocab_size: int = 0,
        make_matcher: Callable[[], Any] | None = None,
    ) -> None:
        """`matcher`: the library's, which has seen no token and never will. `option`: of the request, for errors.
        `clock`: what the thread has worked, in seconds. `size_bytes`: what it takes of the memory, about. `vocab_size`:
        of the library's masks, or they are never made together. `make_matcher`: makes one more in no time; None where
        that takes long, or much memory."""
        self._matchers = [matcher]
        self._make_matcher = make_matcher
        self._growing = threading.Lock()
        self._numbers = itertools.count()
        self._matcher_bytes = size_bytes
        self.vocab_size = vocab_size
        self.option = option
        self._spare = spare
        self._clock = clock
        self._first: TokenBits | None = None
        self._left_s = _OWN_S
        self._taken_s = 0.0
        self._count = 0
        self.cost_s = 0.0
        """The most that one of its masks takes, by the last ones."""
        self.advance_s = 0.0
        """The most that it takes to hear of a token."""
        self.refusal = ""
        """Why no sequence can follow it any more, once it has taken too long."""
        self._states: WeakSet[MatcherState] = WeakSet()

    def start(self) -> MatcherState:
        """The state of a sequence without tokens."""
        self._grow()
        number = next(self._numbers) % len(self._matchers)
        state = MatcherState(self._matchers[number].deep_copy(), self, number)
        self._states.add(state)
        return state

    def _grow(self) -> None:
        """Makes one more matcher where many sequences follow the others."""
        with self._growing:
            count = len(self._matchers)
            if self._make_matcher is None or count >= THREADS or len(self._states) < count * _PER_MATCHER:
                return
            matcher = self._make_matcher()
            if matcher is None:
                self._make_matcher = None
            else:
                self._matchers.append(matcher)

    @property
    def size_bytes(self) -> int:
        """What it takes of the memory, about."""
        return self._matcher_bytes * len(self._matchers)

    @property
    def is_followed(self) -> bool:
        """Whether there is a sequence that has a state of it."""
        return len(self._states) > 0

    def mask_of(self, matcher: Any, is_first: bool) -> TokenBits:
        """Which tokens may come next; those that may come first are found out once."""
        if is_first and self._first is not None:
            self.note_mask()
            return self._first
        began_s = self._clock()
        found = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        taken_s = self._clock() - began_s
        self.cost_s = max(taken_s, _FADING * self.cost_s)
        self.note_mask(taken_s)
        if is_first and not matcher.is_error():
            self._first = found
        return found

    @property
    def has_first(self) -> bool:
        """Whether it is known which tokens may come first."""
        return self._first is not None

    @property
    def is_quick(self) -> bool:
        """Whether its masks are known to take little time."""
        return self.vocab_size > 0 and self._count >= _KNOWN and self.cost_s <= QUICK_S

    def doubt(self) -> None:
        """It may be slow by now: its next mask is measured."""
        self.cost_s = max(self.cost_s, 1.01 * QUICK_S)

    def note_mask(self, taken_s: float = 0.0) -> None:
        """A sequence has its next mask, for which that was taken: with it comes what a token may take."""
        self._take(taken_s, _TOKEN_S)

    def advance(self, matcher: Any, token: int) -> None:
        """A sequence has one more token."""
        began_s = self._clock()
        matcher.consume_token(token)
        taken_s = self._clock() - began_s
        self._count += 1
        self.advance_s = max(taken_s, _FADING * self.advance_s)
        self._take(taken_s)

    def _take(self, seconds: float, more_s: float = 0.0) -> None:
        self._taken_s += seconds
        self._left_s = min(self._left_s + more_s - seconds, _OWN_S)
        if self._left_s >= 0 or self.refusal:
            return
        if not self._spare.take(-self._left_s):
            taken = f"{self._taken_s:.1f} s for {self._count} tokens"
            self.refusal = f"'{self.option}' cannot be followed: it takes too long, {taken}"
        self._left_s = 0.0


class MatcherState:
    """Of one sequence; called by the thread that runs steps alone."""

    def __init__(self, matcher: Any, grammar: CompiledGrammar, number: int = 0) -> None:
        """`number`: of the matcher that its own is a copy of."""
        self.matcher = matcher
        self.number = number
        self.grammar = grammar
        self._mask: TokenBits | None = None
        self._needs_more_than = 0
        """So many tokens the model has, where none of them may come next: others of the tokenizer's alone."""
        self._is_new = True

    def allowed(self, vocab_size: int) -> TokenBits:
        if self.grammar.refusal:  # the token to come ends the sequence, whichever it is
            return every_token(vocab_size)
        if self._mask is None:
            self._mask = self.grammar.mask_of(self.matcher, self._is_new)
        found = fitted(self._mask, vocab_size)
        self._needs_more_than = 0 if found.any() else vocab_size
        return found

    @property
    def makes_mask_quickly(self) -> bool:
        """Whether it has one to make, which its grammar is quick at."""
        return self.cost_s > 0 and self.grammar.is_quick

    def take_mask(self, bits: TokenBits) -> None:
        """One that was made for it elsewhere."""
        self._mask = bits
        self.grammar.note_mask()

    @property
    def cost_s(self) -> float:
        has_mask = self._mask is not None or (self._is_new and self.grammar.has_first)
        return 0.0 if has_mask or self._is_over else self.grammar.cost_s

    @property
    def later_cost_s(self) -> float:
        if self._is_over:
            return 0.0
        return self.grammar.cost_s if self.grammar.is_quick else math.inf

    @property
    def advance_s(self) -> float:
        return 0.0 if self._is_over else self.grammar.advance_s

    @property
    def _is_over(self) -> bool:
        """Whether the library is asked nothing any more."""
        return bool(self.grammar.refusal) or bool(self.matcher.is_stopped())

    def advance(self, token: int) -> None:
        self._mask, self._is_new = None, False
        if self._is_over:
            return
        self.grammar.advance(self.matcher, token)

    @property
    def is_finished(self) -> bool:
        return bool(self.matcher.is_stopped())

    @property
    def error(self) -> str:
        if self.matcher.is_error():
            reason = short_reason(str(self.matcher.get_error()))
            if self._needs_more_than:
                reason = f"it asks for tokens that the model, which has {self._needs_more_than}, cannot write"
            return f"'{self.grammar.option}' cannot be followed: {reason}"
        return "" if self.is_finished else self.grammar.refusal


class AfterReasoning:
    """A grammar for what follows the model's reasoning, which itself is free."""

    def __init__(
        self, grammar: Grammar, opening: int | None, closing: bytes, pieces: Any, end_ids: Collection[int]
    ) -> None:
        """`opening`: the token that begins a reasoning; None where the prompt has begun it. `closing`: the text that
        ends it. `pieces`: gives the bytes of a token.
        """
        self._grammar = grammar
        self._opening = opening
        self._closing = closing
        self._pieces = pieces
        self._end_ids = list(end_ids)

    def start(self) -> ReasoningState:
        """The state of a sequence without tokens."""
        return ReasoningState(self._grammar.start(), self._opening, self._closing, self._pieces, self._end_ids)


class ReasoningState:
    """Of one sequence. Until the reasoning has ended every token may come, but none that ends the answer."""

    def __init__(
        self, inner: GrammarState, opening: int | None, closing: bytes, pieces: Any, end_ids: list[int]
    ) -> None:
        self._inner = inner
        self._opening = opening
        self._closing = closing
        self._pieces = pieces
        self._end_ids = end_ids
        self._is_reasoning = opening is None
        self._written = b""

    def allowed(self, vocab_size: int) -> TokenBits:
        if self._is_reasoning:
            return without(every_token(vocab_size), self._end_ids)
        found: TokenBits = self._inner.allowed(vocab_size)
        if self._opening is not None and self._opening < vocab_size:
            return with_token(found, self._opening)
        return found

    def advance(self, token: int) -> None:
        if self._is_reasoning:
            self._written += self._pieces(token)
            self._is_reasoning = self._closing not in self._written
            self._written = self._written[-len(self._closing) :]
        elif self._opening is not None and token == self._opening:
            self._is_reasoning = True
        else:
            self._inner.advance(token)
        self._opening = None

    @property
    def inner(self) -> GrammarState | None:
        """What follows the answer; None during the reasoning."""
        return None if self._is_reasoning else self._inner

    @property
    def cost_s(self) -> float:
        return 0.0 if self._is_reasoning else self._inner.cost_s

    @property
    def later_cost_s(self) -> float:
        return self._inner.later_cost_s  # the next token may end the reasoning

    @property
    def advance_s(self) -> float:
        return 0.0 if self._is_reasoning else self._inner.advance_s

    @property
    def is_finished(self) -> bool:
        return not self._is_reasoning and self._inner.is_finished

    @property
    def error(self) -> str:
        return self._inner.error


def matcher_state(state: GrammarState | None) -> MatcherState | None:
    """What says now which tokens may come, where that is the library and not a reasoning."""
    if isinstance(state, ReasoningState):
        return matcher_state(state.inner)
    return state if isinstance(state, MatcherState) else None
