"""Which steps with several tokens of a sequence, of prompts or drafts, are recorded, filled up to a few sizes."""

from __future__ import annotations

from trireme.llm.executors.cuda.decoder import SPLIT_TILES
from trireme.llm.executors.cuda.packing import count_tiles
from trireme.llm.step_plan import StepPlan

PROMPT_BUCKETS = (16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512)
"""Tokens of such steps; with more, launching takes less time than computing."""
PROMPT_SAMPLES = (8, 64)
"""Tokens that they bring; many where drafts of several sequences are verified."""
VERIFIED_BUCKETS = tuple(size for size in PROMPT_BUCKETS if size <= 128)
"""Tokens of steps that bring many: their logits are kept for every size."""
_TILES = 16


def is_small(plan: StepPlan) -> bool:
    """Whether a step is of a kind that is recorded."""
    samples = sum(len(chunk.sampled) for chunk in plan.chunks)
    has_many = plan.has_drafts and samples > PROMPT_SAMPLES[0]
    most = VERIFIED_BUCKETS[-1] if has_many else PROMPT_BUCKETS[-1]
    if plan.token_count > most or samples > PROMPT_SAMPLES[has_many]:
        return False
    return count_tiles(plan.chunks) <= _TILES


def verified_sizes(splits: int) -> list[tuple[int, int, int]]:
    """What is recorded for drafts: tokens, splits of long sequences' keys, tokens that the step brings."""
    few, many = PROMPT_SAMPLES
    cuts = sorted({1, splits})
    return [(VERIFIED_BUCKETS[0], splits, few), *((size, cut, many) for size in VERIFIED_BUCKETS for cut in cuts)]


def samples_for(count: int) -> int:
    """How many tokens the recorded step brings that is used for so many."""
    return next(size for size in PROMPT_SAMPLES if size >= count)


def tile_count(splits: int) -> int:
    """How many tiles of chunks a recorded step has."""
    return SPLIT_TILES if splits > 1 else _TILES
