"""How far the tokens of a sequence have come in a grammar, and which may come next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.llm.sampling_params import Grammar, GrammarState

Mask = npt.NDArray[np.bool_]


class CompiledGrammar:
    """Immutable; many sequences share it."""

    def __init__(self, matcher: Any, option: str) -> None:
        """`matcher`: the library's, which has seen no token and never will. `option`: of the request, for errors."""
        self._matcher = matcher
        self._option = option

    def start(self) -> MatcherState:
        """The state of a sequence without tokens."""
        return MatcherState(self._matcher.deep_copy(), self._option)


class MatcherState:
    """Of one sequence; called by the thread that runs steps alone."""

    def __init__(self, matcher: Any, option: str) -> None:
        self._matcher = matcher
        self._option = option

    def allowed_mask(self, vocab_size: int) -> Mask:
        found: Mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8) != 0
        if found.size >= vocab_size:
            return found[:vocab_size]
        return np.concatenate([found, np.zeros(vocab_size - found.size, np.bool_)])

    def advance(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)

    @property
    def is_finished(self) -> bool:
        return bool(self._matcher.is_stopped())

    @property
    def error(self) -> str:
        if not self._matcher.is_error():
            return ""
        return f"'{self._option}' cannot be followed: {str(self._matcher.get_error()).splitlines()[0]}"


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

    def allowed_mask(self, vocab_size: int) -> Mask:
        if self._is_reasoning:
            free = np.ones(vocab_size, np.bool_)
            free[[end for end in self._end_ids if end < vocab_size]] = False
            return free
        mask: Mask = self._inner.allowed_mask(vocab_size)
        if self._opening is not None and self._opening < vocab_size:
            mask = mask.copy()
            mask[self._opening] = True
        return mask

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
    def is_finished(self) -> bool:
        return not self._is_reasoning and self._inner.is_finished

    @property
    def error(self) -> str:
        return self._inner.error
