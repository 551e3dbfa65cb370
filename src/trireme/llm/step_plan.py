"""What a step computes: some tokens of some sequences, within the limits of who computes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from trireme.llm.request import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What the executor has room for."""

    block_size: int
    block_count: int
    max_sequences: int
    max_step_tokens: int
    """Tokens in one step; longer prompts are computed in several."""
    has_prefix_cache: bool = True
    short_positions: int = 0
    """A sequence with more tokens than this is computed in another way, from its first token on; 0: none is."""
    cache_setting: str = "cache_bytes"
    """The option that gives the cache more room."""
    chooses_later: bool = False
    """Whether a step may begin before it is known what its tokens are chosen by: see `Executor.choose`."""


@dataclass(slots=True)
class Chunk:
    """Some tokens of a sequence in a step; never modified, but a frozen one takes three times as long to make."""

    sequence: Sequence
    start: int
    """The position of the first."""
    count: int
    samples: bool
    """Whether the step brings a token of the sequence."""
    is_pending: bool
    """Whether the chunk is one token that the step before brings."""
    admission: int
    """Which stay of the sequence among those that run this belongs to."""
    drafts: tuple[int, ...] = ()
    """Guesses of what comes behind the tokens that are known; they are the last of the chunk's tokens."""

    @property
    def tokens(self) -> list[int]:
        """What the step computes, drafts included; without the one that the step before brings."""
        known = self.sequence.tokens[self.start : self.start + self.count - len(self.drafts)]
        return [*known, *self.drafts]

    @property
    def sampled(self) -> range:
        """The positions of the tokens that the step brings: behind the last known one, and behind each draft."""
        end = self.start + self.count
        return range(end - len(self.drafts), end + 1) if self.samples else range(0)

    @property
    def prompt_targets(self) -> list[int]:
        """The prompt's tokens behind each of the chunk's, where their probabilities are to be told; else none."""
        sequence = self.sequence
        if not sequence.wants_prompt_logprobs:
            return []
        return sequence.tokens[self.start + 1 : min(self.start + self.count + 1, sequence.prompt_size)]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step computes."""

    chunks: tuple[Chunk, ...]
    token_count: int
    joined: tuple[Sequence, ...] = ()
    """Sequences whose slot has other blocks than the steps before know of."""
    is_awaited: bool = False
    """Whether half of what runs can go on only behind it: a step for the others beside it would cost as much again."""

    @property
    def has_drafts(self) -> bool:
        return any(chunk.drafts for chunk in self.chunks)


@dataclass(slots=True)
class OpenPlan:
    """A plan while it is made."""

    budget: int
    chunks: list[Chunk] = field(default_factory=list)
    joined: list[Sequence] = field(default_factory=list)
    has_preempted: bool = False
    open_count: int = 0
    """Chunks of sequences that can go on only when their token is known."""
