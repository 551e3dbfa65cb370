"""Chooses tokens from logits, row by row as each request wants it; what other devices do has to come to the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from trireme.llm.grammar.mask_batches import make_masks
from trireme.llm.grammar.token_bits import TokenBits, as_mask, without
from trireme.llm.request import Sequence as TokenSequence
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling.noise import gumbel, row_key
from trireme.llm.sampling.token_history import history_of, top_p_of
from trireme.llm.sampling_params import GrammarState, SamplingParams

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen token of each row, and the probabilities that were asked for, by row."""

    tokens: list[int]
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)


def choose(logits: Logits, sequences: Sequence[TokenSequence], positions: Sequence[int]) -> Choice:
    """The next token of each sequence, which stands at the given position. The logits are not modified.

    A sequence for which none can be chosen is given its error. Probabilities are reported as the model gives them,
    before temperature, penalties and limits.
    """
    tokens = cast("list[int]", logits.argmax(axis=1).tolist())
    is_number = np.isfinite(logits[np.arange(len(tokens)), tokens]).tolist()  # NaN is the largest of its row
    for sequence, is_right in zip(sequences, is_number, strict=True):
        if not is_right:
            sequence.fail_without_numbers()
    make_masks(sequences)
    logprobs = {}
    for row, (sequence, position) in enumerate(zip(sequences, positions, strict=True)):
        params = sequence.params
        if params.beams:
            logprobs[row] = beam_candidates(logits[row], sequence)
            continue
        if not (params.is_greedy and not params.needs_history):
            try:
                tokens[row] = _choose_one(logits[row], sequence, position)
            except Exception as error:
                sequence.fail("its next token could not be chosen", error)
        if params.logprobs is not None:
            logprobs[row] = describe(logits[row], tokens[row], params.logprobs)
    return Choice(tokens, logprobs)


def describe(logits: Logits, token: int, count: int) -> TokenLogprobs:
    """The probability of a token, its rank from 1, and the `count` most likely ones in its place."""
    values = log_softmax(logits)
    rank = 1 + int(np.count_nonzero(logits > logits[token]))
    if not count:
        return TokenLogprobs(float(values[token]), rank)
    count = min(count, values.size)
    best = np.argpartition(-values, count - 1)[:count]
    best = best[np.lexsort((best, -values[best]))]
    return TokenLogprobs(float(values[token]), rank, tuple((int(one), float(values[one])) for one in best))


def beam_candidates(logits: Logits, sequence: TokenSequence) -> TokenLogprobs:
    """The likeliest next tokens of a beam: penalties and limits change its log probabilities, not its logits."""
    values = log_softmax(logits).astype(np.float32)
    try:
        values = adjusted(values, sequence) if sequence.params.needs_history else values
    except Exception as error:
        sequence.fail("its next token could not be chosen", error)
    count = min(max(sequence.candidate_count, sequence.params.logprobs or 0), values.size)
    best = np.argpartition(-values, count - 1)[:count]
    best = best[np.lexsort((best, -values[best]))]
    return TokenLogprobs(float(values[best[0]]), 1, tuple((int(one), float(values[one])) for one in best))


def log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    """Logarithms of the probabilities of one row."""
    shifted = logits.astype(np.float64) - logits.max()
    return cast("npt.NDArray[np.float64]", shifted - np.log(np.exp(shifted).sum()))


def _choose_one(row: Logits, sequence: TokenSequence, position: int) -> int:
    params = sequence.params
    logits = adjusted(row, sequence) if params.needs_history else row
    if not logits.max() > -np.inf:  # everything is forbidden
        return int(row.argmax())
    if params.is_greedy:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / params.temperature
    candidates = kept_tokens(scaled, params, top_p_of(sequence))
    noise = gumbel(row_key(sequence.seed, position), candidates)
    return int(candidates[(scaled[candidates] + noise).argmax()])


def adjusted(row: Logits, sequence: TokenSequence) -> Logits:
    """The logits after penalties, biases and what is forbidden, in this order."""
    params, logits = sequence.params, row.copy()
    _penalise(logits, sequence)
    if params.logit_bias:
        history = history_of(sequence)
        logits[history.bias_ids] += history.bias_amounts
    if sequence.grammar is None:
        logits[forbidden_tokens(sequence)] = -np.inf
    else:
        logits[~as_mask(allowed_tokens(sequence.grammar, sequence, logits.size), logits.size)] = -np.inf
    return logits


def allowed_tokens(grammar: GrammarState, sequence: TokenSequence, vocab_size: int) -> TokenBits:
    """What the sequence's grammar leaves, without what is forbidden otherwise, unless that is all of it."""
    allowed: TokenBits = grammar.allowed(vocab_size)
    forbidden = forbidden_tokens(sequence)
    if not forbidden:
        return allowed
    left = without(allowed, forbidden)
    return left if left.any() else allowed


def forbidden_tokens(sequence: TokenSequence) -> list[int]:
    """What must not come next: ends before there are enough tokens, and the last tokens of bad words."""
    params = sequence.params
    found = list(sequence.end_ids) if sequence.output_count < params.min_tokens else []
    if params.bad_words:
        found += history_of(sequence).completing(sequence.tokens)
    return found


def _penalise(logits: Logits, sequence: TokenSequence) -> None:
    params = sequence.params
    if params.repetition_penalty != 1.0:
        seen = history_of(sequence).seen(sequence.tokens)
        found = logits[seen]
        logits[seen] = np.where(found > 0, found / params.repetition_penalty, found * params.repetition_penalty)
    if (params.presence_penalty or params.frequency_penalty) and sequence.output_count:
        written, counts = history_of(sequence).written(sequence.tokens)
        logits[written] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)


def kept_tokens(scaled: npt.NDArray[np.float64], params: SamplingParams, top_p: float) -> npt.NDArray[Any]:
    """The ids that the limits leave, by top-k, then top-p of these, then min-p. Equal ones stay or go together."""
    size, largest, floor = scaled.size, scaled.max(), -np.inf
    if 0 < params.top_k < size:
        floor = np.partition(scaled, size - params.top_k)[size - params.top_k]
    if top_p < 1.0:
        falling = np.sort(scaled[scaled >= floor])[::-1]
        weights = np.exp(falling - largest)
        sums = np.cumsum(weights)
        floor = falling[min(int(np.searchsorted(sums, top_p * sums[-1])), falling.size - 1)]
    if params.min_p > 0.0:
        floor = max(floor, largest + np.log(params.min_p))
    return np.flatnonzero(scaled >= floor) if np.isfinite(floor) else np.flatnonzero(scaled > -np.inf)
