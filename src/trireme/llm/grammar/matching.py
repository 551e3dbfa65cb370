"""How far the tokens of a sequence have come in a grammar, and which may come next."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from trireme.llm.grammar.token_bits import TokenBits, every_token, fitted, with_token, without
from trireme.llm.sampling_params import Grammar, GrammarState

QUICK_S: Final = 0.002
"""Masks that take longer are those of slow grammars."""
_TOKEN_S: Final = 0.02
_OWN_S: Final = 0.25
"""What a grammar may take of the thread that runs everybody's steps: so much for each token, and that beyond it.
Grammars that people write take a millisecond, those that can be read in many ways take more with every token."""
_FADING: Final = 0.9
"""What is left of a mask's time, as an estimate of later ones, with each that takes less."""
_SPARE_S: Final = 2.0
_SPARE_SHARE: Final = 0.1
"""What all grammars of a model may take beyond that: so much, which comes back with this share of the time."""


class SpareTime:
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
        spare: SpareTime,
        clock: Callable[[], float] = time.thread_time,
        size_bytes: int = 0,
    ) -> None:
        """`matcher`: the library's, which has seen no token and never will. `option`: of the request, for errors.
        `clock`: what the thread has worked, in seconds. `size_bytes`: what it takes of the memory, about."""
        self._matcher = matcher
        self.size_bytes = size_bytes
        self.option = option
        self._spare = spare
        self._clock = clock
        self._first: TokenBits | None = None
        self._left_s = _OWN_S
        self._taken_s = 0.0
        self._count = 0
        self.cost_s = 0.0
        """The most that one of its masks takes, by the last ones."""
        self.refusal = ""
        """Why no sequence can follow it any more, once it has taken too long."""
        self._states: WeakSet[MatcherState] = WeakSet()

    def start(self) -> MatcherState:
        """The state of a sequence without tokens."""
        state = MatcherState(self._matcher.deep_copy(), self)
        self._states.add(state)
        return state

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

    def note_mask(self, taken_s: float = 0.0) -> None:
        """A sequence has its next mask, for which that was taken: with it comes what a token may take."""
        self._take(taken_s, _TOKEN_S)

    def advance(self, matcher: Any, token: int) -> None:
        """A sequence has one more token."""
        began_s = self._clock()
        matcher.consume_token(token)
        self._count += 1
        self._take(self._clock() - began_s)

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

    def __init__(self, matcher: Any, grammar: CompiledGrammar) -> None:
        self.matcher = matcher
        self.grammar = grammar
        self._mask: TokenBits | None = None
        self._is_new = True

    def allowed(self, vocab_size: int) -> TokenBits:
        if self.grammar.refusal:  # the token to come ends the sequence, whichever it is
            return every_token(vocab_size)
        if self._mask is None:
            self._mask = self.grammar.mask_of(self.matcher, self._is_new)
        return fitted(self._mask, vocab_size)

    @property
    def cost_s(self) -> float:
        has_mask = self._mask is not None or (self._is_new and self.grammar.has_first)
        return 0.0 if has_mask or self.grammar.refusal or self.matcher.is_stopped() else self.grammar.cost_s

    def advance(self, token: int) -> None:
        self._mask, self._is_new = None, False
        if self.grammar.refusal or self.matcher.is_stopped():
            return
        self.grammar.advance(self.matcher, token)

    @property
    def is_finished(self) -> bool:
        return bool(self.matcher.is_stopped())

    @property
    def error(self) -> str:
        if self.matcher.is_error():
            return f"'{self.grammar.option}' cannot be followed: {str(self.matcher.get_error()).splitlines()[0]}"
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
    def cost_s(self) -> float:
        return 0.0 if self._is_reasoning else self._inner.cost_s

    @property
    def is_finished(self) -> bool:
        return not self._is_reasoning and self._inner.is_finished

    @property
    def error(self) -> str:
        return self._inner.error
