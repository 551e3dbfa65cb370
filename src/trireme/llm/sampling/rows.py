"""The rows of a step that tokens are chosen from: behind each sequence's last token, and behind each of its drafts."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import NamedTuple

from trireme.llm.request import Sequence
from trireme.llm.sampling.token_history import history_of
from trireme.llm.step_plan import Chunk


class SampledRow(NamedTuple):
    """Where one token is chosen."""

    sequence: Sequence
    """As it is where the drafts before this place are right."""
    position: int
    """Of the token that is chosen."""
    offset: int
    """Of the row within its chunk."""


def sampled_rows(chunk: Chunk) -> list[SampledRow]:
    """Of one chunk; none where it does not sample."""
    if not chunk.drafts:
        return [SampledRow(chunk.sequence, chunk.start + chunk.count, chunk.count - 1)] if chunk.samples else []
    return [
        SampledRow(_with_drafts(chunk.sequence, chunk.drafts[:number]), position, position - chunk.start - 1)
        for number, position in enumerate(chunk.sampled)
    ]


def all_sampled_rows(chunks: Iterable[Chunk]) -> list[SampledRow]:
    """Of chunks, one after another."""
    return [row for chunk in chunks for row in sampled_rows(chunk)]


def fail_without_tokens(tokens: Iterable[int], rows: Iterable[SampledRow]) -> list[int]:
    """Ends the sequences of rows whose token is negative, where the model computed no numbers; gives them 0 for it."""
    found = []
    for token, row in zip(tokens, rows, strict=True):
        if token < 0:
            row.sequence.fail_without_numbers()
        found.append(max(token, 0))
    return found


def _with_drafts(sequence: Sequence, drafts: tuple[int, ...]) -> Sequence:
    """The sequence itself, where what is chosen does not depend on what was written before."""
    if not drafts or not sequence.params.needs_history:
        return sequence
    guess = copy.copy(sequence)
    guess.tokens = [*sequence.tokens, *drafts]
    guess.history = history_of(sequence).copy()
    guess.guess_of = sequence
    return guess
