"""What a sequence has written so far, counted as it grows, for choices of its next token that depend on it."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.llm.request import Sequence as TokenSequence
from trireme.llm.sampling_params import SamplingParams

LARGEST_BIAS = 1e30
"""Decides against every logit, and leaves room to reckon with it."""

Ids = npt.NDArray[np.int64]


def history_of(sequence: TokenSequence) -> TokenHistory:
    """The sequence's own, made when it is first asked for."""
    if not isinstance(sequence.history, TokenHistory):
        sequence.history = TokenHistory(sequence.params, sequence.prompt_size)
    return sequence.history


def top_p_of(sequence: TokenSequence) -> float:
    """The share of probability that the sequence's next token is taken from, after what has decayed of it."""
    params = sequence.params
    return params.top_p if params.top_p_decay == 1.0 else history_of(sequence).top_p(sequence.tokens)


class TokenHistory:
    """Belongs to one sequence, whose tokens never change but for new ones behind them."""

    def __init__(self, params: SamplingParams, prompt_size: int) -> None:
        self._seen_set: set[int] = set()
        self._seen = array("q")
        self._seen_size = 0
        self._written_places: dict[int, int] = {}
        self._written = array("q")
        self._counts = array("q")
        self._written_size = prompt_size
        self._params = params
        self._top_p = params.top_p
        self._decayed_size = prompt_size
        self._single_words = tuple(sorted({word[0] for word in params.bad_words if len(word) == 1}))
        self._longer_words = _by_last_but_one(params.bad_words)
        self.bias_ids = np.array(list(params.logit_bias), np.int64)
        self.bias_amounts = _limited(list(params.logit_bias.values()))

    def copy(self) -> TokenHistory:
        """The same for a sequence that goes on in another way."""
        made = copy.copy(self)
        made._seen_set = self._seen_set.copy()
        made._seen, made._written, made._counts = self._seen[:], self._written[:], self._counts[:]
        made._written_places = self._written_places.copy()
        return made

    def seen(self, tokens: Sequence[int]) -> Ids:
        """Every token of prompt and answer once."""
        for token in dict.fromkeys(tokens[self._seen_size :]):
            if token not in self._seen_set:
                self._seen_set.add(token)
                self._seen.append(token)
        self._seen_size = len(tokens)
        return np.array(self._seen, np.int64)

    def written(self, tokens: Sequence[int]) -> tuple[Ids, Ids]:
        """Every token of the answer once, and how often it is there."""
        for token in tokens[self._written_size :]:
            place = self._written_places.setdefault(token, len(self._written))
            if place == len(self._written):
                self._written.append(token)
                self._counts.append(0)
            self._counts[place] += 1
        self._written_size = len(tokens)
        return np.array(self._written, np.int64), np.array(self._counts, np.int64)

    def top_p(self, tokens: Sequence[int]) -> float:
        """What the decay has left after these tokens."""
        params = self._params
        for token in tokens[self._decayed_size :]:
            is_reset = token == params.top_p_reset_id
            self._top_p = params.top_p if is_reset else max(self._top_p * params.top_p_decay, params.top_p_min)
        self._decayed_size = len(tokens)
        return self._top_p

    def completing(self, tokens: Sequence[int]) -> Iterator[int]:
        """The tokens that would complete a bad word."""
        yield from self._single_words
        for word in self._longer_words.get(tokens[-1], ()) if tokens else ():
            before = len(word) - 1
            if tuple(tokens[-before:]) == word[:-1]:
                yield word[-1]


def _by_last_but_one(words: Sequence[tuple[int, ...]]) -> dict[int, list[tuple[int, ...]]]:
    """Only those words can be completed whose last but one token is the sequence's last."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for word in words:
        if len(word) > 1:
            found.setdefault(word[-2], []).append(word)
    return found


def _limited(amounts: Sequence[Any]) -> npt.NDArray[np.float32]:
    return np.clip(np.array(amounts, np.float64), -LARGEST_BIAS, LARGEST_BIAS).astype(np.float32)
