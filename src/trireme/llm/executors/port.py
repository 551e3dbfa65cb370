"""The interface between the engine's loop and what computes its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import TokenLogprobs
from trireme.llm.step_plan import SchedulerLimits, StepPlan

LOGPROB_ROWS = 128
"""So many of a prompt's tokens have their logits at once: it bounds the memory that probabilities of prompts take."""


class ExecutorError(Exception):
    """The device or the model cannot do what is asked for; the text says what to do."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step brought."""

    tokens: Sequence[int]
    """One for each chunk that samples, in their order; behind it one for each of the chunk's drafts, as if that and
    those before it were right."""
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """Of those tokens, by their index, where they were asked for."""
    prompt_logprobs: Mapping[int, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    """By the index of the chunk: for each of its tokens what the prompt's next one had."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Something that steps of one kind need, and that takes long the first time."""

    name: str
    """Of the kind, for the log."""
    run: Callable[[], object]
    """Makes it ready, in the thread that runs steps; does nothing where it is."""
    is_first: bool = False
    """Whether almost every request needs it."""


class Executor(Protocol):
    """Computes steps one after another. All calls come from one thread."""

    spec: DecoderSpec
    limits: SchedulerLimits
    is_async: bool
    """Whether `submit` returns before the step is done, so that the next one can be planned meanwhile."""

    takes_drafts: bool
    """Whether a chunk may have drafts; the keys and values of wrong ones are written over."""

    is_preparing: bool
    """Whether it makes something ready for steps of a new kind (compiles, records), which may take longer than a step;
    read by other threads. False for who never does."""

    def warm_ups(self) -> Sequence[WarmUp]:
        """What it would otherwise make ready amid traffic, what is needed soonest first; each runs between steps."""

    def submit(self, plan: StepPlan) -> Any:
        """Begins a step; what it returns is for `collect`. The plan is read before it returns, never changed."""

    def choose(self, handle: Any) -> None:
        """Chooses the tokens of a step once the step before is settled, where `limits.chooses_later`.

        What decides about a token beside its logits, as a grammar does, depends on all tokens before it, and the device
        needs none of it to compute the logits. The engine calls it behind each `submit` and before the next one; what
        `submit` could choose by itself is chosen, as all of a draft model's, whose steps nobody chooses for.
        """

    def collect(self, handle: Any) -> StepResult:
        """Waits for a step. Steps are collected in the order in which they were submitted."""

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies blocks of the cache, each from the first to the second, behind the steps that were submitted.

        None is the target of one pair and the source of another.
        """

    def close(self) -> None:
        """Gives the device's memory back."""


def failure_of(executor: Executor) -> str:
    """What has ended an executor between steps, where it knows of such (`failure`); may be asked in any thread."""
    return str(getattr(executor, "failure", ""))
