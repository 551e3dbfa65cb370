"""One sequence of tokens that is being written: what is known of it, how far it is computed, and why it ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.sampling_params import GrammarState, SamplingParams

log = logging.getLogger(__name__)


class FinishReason(Enum):
    """Why no more tokens come."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ERROR = "error"
    UNFOLLOWED = "unfollowed"
    """The request's own grammar is too large to be followed; the error says whose."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The logarithm of a token's probability, and the most likely tokens in its place."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceTimes:
    """Moments of a sequence's life, in seconds of the engine's clock; 0 where it has not come to that."""

    arrival: float
    started: float
    first_token: float
    last_token: float
    drafted: int = 0
    """How many of its tokens were guessed before they were chosen."""
    accepted: int = 0
    """How many of those guesses were right."""
    preemptions: int = 0
    """How often others needed its blocks or its place, so that it was computed again."""


class SequenceOutput(NamedTuple):
    """What is new of a sequence."""

    token_ids: tuple[int, ...]
    """Tokens since the last output."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    """Set once, in the last output."""
    stop_token: int | None = None
    """The token that ended the sequence, where one did."""
    error: str = ""
    times: SequenceTimes | None = None
    """With the last output, and with all of a sequence that a stop string may end."""
    cached_tokens: int = 0
    """How many tokens of the prompt were found in the cache."""
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """Of the prompt's tokens but the first, once, with the first token or the end; None where nobody has asked."""
    score: float | None = None
    """Of a beam: the sum of its log probabilities, divided by what its length counts."""


Listener = Callable[[SequenceOutput], None]


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable; owned by the scheduler from `add` to its end."""

    sequence_id: int
    tokens: list[int]
    """The prompt, and behind it what was written."""
    prompt_size: int
    params: SamplingParams
    listener: Listener
    keys: BlockKeys
    max_size: int
    """Prompt and answer together have at most so many tokens."""
    seed: int = 0
    priority: int = 0
    """The smaller, the sooner."""
    deadline: float | None = None
    end_ids: frozenset[int] = frozenset()
    arrival: float = 0.0
    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    adapter: PlacedAdapter | None = None
    """What is added to the model's matrices for it."""
    grammar: GrammarState | None = None
    """Its own state, which stays as it is where others need its blocks meanwhile: its tokens stay too."""
    request_id: int | None = None
    """What all answers of one request have in common; None: it is the only one."""

    blocks: list[int] = field(default_factory=list)
    slot: int = -1
    """Its row in the executor's tables; -1 while it waits."""
    admissions: int = 0
    """How often it was let in, or has gone on from another beam: what was computed for it before is of no use."""
    size_at_admission: int = 0
    """How many tokens it had when it was let in."""
    preemptions: int = 0
    """How often others needed its blocks, or its place."""
    computed: int = 0
    """Tokens whose keys and values are in the cache once the steps under way are done."""
    pending: int = 0
    """Tokens that steps under way will bring."""
    cached: int = 0
    is_long: bool = False
    """Whether it has more tokens than the model's usual rotation is for."""
    remembered: int = 0
    """How many of its blocks the pool knows by their content."""
    finish_reason: FinishReason | None = None
    stop_token: int | None = None
    error: str = ""
    has_told_prompt: bool = False
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    """What is known of the prompt's tokens but the first, where they were asked for."""
    peers: list[Sequence] = field(default_factory=list)
    """The beams of one search, which share blocks, run and wait together; the first leads. Empty for all others."""
    awaits_mask: bool = False
    """Whether it is left out of the next step, because its grammar takes long, and it is others' turn."""
    may_have_slow_grammar: bool = False
    """Whether its grammar is not known to be quick, so that its last token is waited for before a step is planned."""
    takes_turns: bool = False
    """Whether slow masks took all that a step has for them when it was last its own that was asked for."""
    is_suspended: bool = False
    """Whether it is a beam that has a slot, and nothing to compute: those behind the leader until that is computed."""
    history: object = None
    """What the sampler keeps of it from step to step."""
    drafts: tuple[int, ...] = ()
    """Guesses of its next tokens, for the step that is planned next."""
    awaits_drafts: bool = False
    """Whether it is not planned before its tokens under way are known, since what comes then can be guessed."""
    drafted: int = 0
    """How many guesses steps have verified."""
    accepted: int = 0
    """How many of them were right."""
    guess_of: Sequence | None = None
    """The sequence whose drafts this one takes for right, so that a token behind them can be chosen; None: its own."""

    def fail(self, what: str, error: Exception) -> None:
        """Notes why it cannot go on; the engine ends it when its step is settled."""
        own = self.guess_of or self
        if not own.error:
            log.error("a sequence is ended: %s", what, exc_info=error)
            own.error = f"{what}: {type(error).__name__}: {error}"

    def make_mask(self, vocab_size: int) -> None:
        """Lets its grammar find out which tokens may come next; fails where that cannot be followed."""
        if self.grammar is None or self.error:
            return
        try:
            self.grammar.allowed(vocab_size)
        except Exception as error:
            self.fail("its grammar could not be followed", error)

    def advance_grammar(self, token: int) -> None:
        """Tells its grammar of a token that was chosen; fails where that cannot be followed."""
        if self.grammar is None or self.error:
            return
        try:
            self.grammar.advance(token)
            self.error = self.grammar.error
        except Exception as error:
            self.fail("its grammar could not be followed", error)

    @property
    def failure(self) -> FinishReason:
        """Why it ends where it has an error: by its request's grammar, or by what is the engine's."""
        has_grammar_failed = self.grammar is not None and self.error == self.grammar.error
        return FinishReason.UNFOLLOWED if has_grammar_failed else FinishReason.ERROR

    def fail_without_numbers(self) -> None:
        """The same where the model's results are infinite, or not numbers at all."""
        what = "the model computes no numbers any more; download its weights again, or ask for another dtype"
        self.fail(what, FloatingPointError("the logits are infinite or NaN"))

    def note_prompt_logprobs(self, start: int, found: tuple[TokenLogprobs, ...]) -> None:
        """Of the tokens behind the one at that position; they come anew where the prompt is computed anew."""
        self.prompt_logprobs[start:] = found

    def told_prompt_logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        """All of them, to be told once; None where they are not wanted, or were told."""
        if not self.wants_prompt_logprobs or len(self.prompt_logprobs) != self.prompt_size - 1:
            return None
        self.has_told_prompt = True
        return tuple(self.prompt_logprobs)

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether the prompt has to be computed in full, so that its probabilities can be told."""
        return self.params.prompt_logprobs is not None and not self.has_told_prompt

    @property
    def size(self) -> int:
        """Tokens, with those under way."""
        return len(self.tokens) + self.pending

    @property
    def candidate_count(self) -> int:
        """How many next tokens of a beam are looked at: enough that all of them go on if every end comes first."""
        return max(2, 1 + len(self.end_ids)) * self.params.beams

    @property
    def output_count(self) -> int:
        return len(self.tokens) - self.prompt_size

    def ends_with(self, token: int) -> bool:
        """Whether its last token ends it: one that ends sequences, unless a grammar asks for it and goes on behind."""
        if token not in self.end_ids:
            return False
        if self.grammar is None:
            return self.output_count >= self.params.min_tokens
        return self.grammar.is_finished or token in self.params.stop_ids

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def times(self) -> SequenceTimes:
        return SequenceTimes(
            self.arrival,
            self.started,
            self.first_token,
            self.last_token,
            self.drafted,
            self.accepted,
            self.preemptions,
        )
