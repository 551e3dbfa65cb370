"""Which steps with several tokens of a sequence, of prompts or drafts, are recorded, filled up to a few sizes."""

from __future__ import annotations

from typing import NamedTuple

from trireme.llm.executors.cuda.packing import count_tiles
from trireme.llm.kernels.chunk_size import CHUNK_ROWS, SPLIT_TILES
from trireme.llm.step_plan import StepPlan

PROMPT_BUCKETS = (16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512)
"""Tokens of such steps; with more, launching takes less time than computing."""
PROMPT_SAMPLES = (8, 64)
"""Tokens that they bring; many where drafts of several sequences are verified."""
VERIFIED_BUCKETS = tuple(size for size in PROMPT_BUCKETS if size <= 128)
"""Tokens of steps that bring many: their logits are kept for every size."""
_TILES = 16


class PromptSizes(NamedTuple):
    """What a recorded step has room for."""

    tokens: int
    splits: int = 1
    """Among how many programs the keys of a tile are split."""
    samples: int = PROMPT_SAMPLES[0]
    """Tokens that it brings."""

    @property
    def tiles(self) -> int:
        """Of chunks."""
        return SPLIT_TILES if self.splits > 1 else _TILES


UNRECORDED = tuple(PromptSizes(PROMPT_BUCKETS[-1] + 1, samples=count) for count in (16, 32, 64))
"""Steps that are too large to be recorded, by how the products for the tokens that they bring are cut."""


def split_sizes(splits: int) -> list[PromptSizes]:
    """What is recorded for further tokens of long sequences, whose keys are split so."""
    if splits == 1:
        return []
    return [PromptSizes(size, splits) for size in PROMPT_BUCKETS if size <= SPLIT_TILES * CHUNK_ROWS]


def is_batch(plan: StepPlan) -> bool:
    """Whether a step has one token of each sequence and brings the next of each; a prompt's, where there is room for no
    more of it, may bring none."""
    return plan.token_count == len(plan.chunks) and all(chunk.samples for chunk in plan.chunks)


def is_small(plan: StepPlan) -> bool:
    """Whether a step is of a kind that is recorded."""
    samples = sum(len(chunk.sampled) for chunk in plan.chunks)
    has_many = plan.has_drafts and samples > PROMPT_SAMPLES[0]
    most = VERIFIED_BUCKETS[-1] if has_many else PROMPT_BUCKETS[-1]
    if plan.token_count > most or samples > PROMPT_SAMPLES[has_many]:
        return False
    return count_tiles(plan.chunks) <= _TILES


def verified_sizes(splits: int) -> list[PromptSizes]:
    """What is recorded for drafts, where the keys of long sequences are split so."""
    few, many = PROMPT_SAMPLES
    cuts = sorted({1, splits})
    return [
        PromptSizes(VERIFIED_BUCKETS[0], splits, few),
        *(PromptSizes(size, cut, many) for size in VERIFIED_BUCKETS for cut in cuts),
    ]


def sizes_for(token_count: int, splits: int, sample_count: int) -> PromptSizes:
    """Of the recorded step that is used for so many."""
    tokens = next(size for size in PROMPT_BUCKETS if size >= token_count)
    return PromptSizes(tokens, splits, next(size for size in PROMPT_SAMPLES if size >= sample_count))
