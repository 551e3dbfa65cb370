"""What a request's history changes in its row of logits, gathered on the host as places and amounts for a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.llm.grammar.token_bits import TokenBits
from trireme.llm.request import Sequence as TokenSequence
from trireme.llm.sampling.numpy_sampler import allowed_tokens, forbidden_tokens
from trireme.llm.sampling.token_history import history_of


@dataclass(slots=True)
class LogitEntries:
    """Places in a table of logits, counted row after row, and a number for each."""

    places: list[npt.NDArray[np.int64]] = field(default_factory=list)
    numbers: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def add(self, first: int, tokens: Sequence[int] | npt.NDArray[Any], numbers: object) -> None:
        """Numbers for some tokens of the row whose first place is given."""
        self.places.append(np.asarray(tokens, np.int64) + first)
        self.numbers.append(np.broadcast_to(np.asarray(numbers, np.float32), (len(tokens),)))


class Edits:
    """The changes of some rows. They are made in this order: factors, decrease, increase, forbidden."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.factors = LogitEntries()
        """What positive logits are divided by and others multiplied with."""
        self.decrease = LogitEntries()
        self.increase = LogitEntries()
        self.forbidden = LogitEntries()
        self.bounded_rows: list[int] = []
        self.allowed: list[TokenBits] = []
        """Of those rows: the only tokens that may come."""

    @property
    def forbids(self) -> bool:
        """Whether tokens of any row are forbidden."""
        return bool(self.forbidden.places or self.allowed)

    def add(self, row: int, sequence: TokenSequence) -> None:
        """What the sequence's parameters and its tokens so far mean for its row."""
        params, first = sequence.params, row * self._vocab_size
        if params.repetition_penalty != 1.0:
            self.factors.add(first, history_of(sequence).seen(sequence.tokens), params.repetition_penalty)
        if (params.presence_penalty or params.frequency_penalty) and sequence.output_count:
            written, counts = history_of(sequence).written(sequence.tokens)
            self.decrease.add(first, written, params.presence_penalty + params.frequency_penalty * counts)
        if params.logit_bias:
            history = history_of(sequence)
            self.increase.add(first, history.bias_ids, history.bias_amounts)
        if sequence.grammar is not None:
            self.allowed.append(allowed_tokens(sequence.grammar, sequence, self._vocab_size))
            self.bounded_rows.append(row)
        elif banned := set(forbidden_tokens(sequence)):
            self.forbidden.add(first, sorted(banned), -np.inf)
