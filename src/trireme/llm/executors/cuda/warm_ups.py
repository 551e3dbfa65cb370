"""Which steps an executor on a GPU makes ready before they come, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from trireme.llm.executors.cuda.prompt_sizes import (
    PROMPT_BUCKETS,
    UNRECORDED,
    PromptSizes,
    split_sizes,
    verified_sizes,
)
from trireme.llm.executors.port import WarmUp

WARM_REACHES = (256, 1024, 4096)
"""Lengths of sequences whose steps are recorded before they come."""


@dataclass(frozen=True, slots=True)
class Preparations:
    """How an executor makes a step of each kind ready."""

    batch: Callable[[int, int], object]
    """Records a step of one token for each of so many sequences, which are up to so long."""
    prompts: Callable[[PromptSizes], object]
    """Records a step with prompts."""
    large: Callable[[PromptSizes], object]
    """Compiles what a step needs that is too large to be recorded."""
    draws: Callable[[], object]
    """Compiles what draws tokens where the largest logit does not decide."""

    def warm_ups(self, buckets: Sequence[int], longest: int, splits: int, verifies: bool) -> list[WarmUp]:
        """Batches and prompts from small to large, then batches and prompts of longer sequences.

        Large steps come early, as most traffic has them. `splits`: among how many programs the keys of the longest
        sequence are split.
        """
        prompts = [self._recorded("prompts", PromptSizes(size)) for size in PROMPT_BUCKETS]
        short, *longer = (
            [WarmUp(f"batches of {size} up to {reach}", partial(self.batch, size, reach)) for size in buckets]
            for reach in WARM_REACHES
            if reach <= max(longest, WARM_REACHES[0])
        )
        found = [kind for pair in zip_longest(short, prompts) for kind in pair if kind is not None]
        found[:2] = [replace(kind, is_first=True) for kind in found[:2]]
        found[2:2] = [WarmUp("draws", self.draws)] + [
            WarmUp(f"large steps that bring up to {sizes.samples} tokens", partial(self.large, sizes))
            for sizes in UNRECORDED
        ]
        if verifies:
            found += [self._recorded("drafts", sizes) for sizes in verified_sizes(splits)]
        found += [kind for kinds in longer for kind in kinds]
        return found + [self._recorded("further prompts", sizes) for sizes in split_sizes(splits)]

    def _recorded(self, what: str, sizes: PromptSizes) -> WarmUp:
        return WarmUp(f"{what} of {sizes.tokens}, {sizes.samples} tokens", partial(self.prompts, sizes))
