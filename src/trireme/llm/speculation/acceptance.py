"""Which tokens of a verified step count: the model's own, as far as they were computed behind the model's own.

Each of them was chosen as it would have been without drafts, with the noise of its own position. So nothing is lost:
greedy texts stay what they are, and so do sampled ones, seed for seed.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from trireme.llm.request import Sequence
from trireme.llm.step_plan import Chunk


def verified_tokens(chunk: Chunk, tokens: Items[int]) -> list[int]:
    """Of what a step brought for a chunk, one token more than it has drafts, those that its sequence goes on with."""
    found = list(tokens)
    if not chunk.drafts:
        return found
    right = next((place for place, draft in enumerate(chunk.drafts) if draft != found[place]), len(chunk.drafts))
    return _until_end(chunk.sequence, found[: right + 1])


def _until_end(sequence: Sequence, tokens: list[int]) -> list[int]:
    """The tokens up to the first that ends the sequence, which has none of them yet."""
    least = sequence.params.min_tokens - sequence.output_count
    ends = (place for place, token in enumerate(tokens, 1) if token in sequence.end_ids and place >= least)
    return tokens[: next(ends, len(tokens))]
