"""How a request wants its tokens chosen, checked once when it comes in."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from operator import attrgetter
from typing import Any, Protocol

MAX_TOP_LOGPROBS = 20
MAX_STOP_STRINGS = 64
MAX_CHOICES = 128
MAX_BEAMS = 128
MAX_BAD_WORDS = 1024
MAX_BIASES = 4096
LEAST_TEMPERATURE = 1e-5
"""Below it the most likely token is as good as certain, and dividing by it would leave the range of numbers."""
MAX_REPETITION_PENALTY = 1e6
MAX_BEAM_FACTOR = 100.0
MIN_SEED = -(2**63)
MAX_SEED = 2**64 - 1


class SamplingError(ValueError):
    """A parameter that cannot be followed; the text says which and why."""


class LongPromptError(SamplingError):
    """The prompt is longer than the model or its cache takes."""


class GrammarState(Protocol):
    """How far one sequence has come in a grammar; called by the thread that runs steps alone."""

    def allowed(self, vocab_size: int) -> Any:
        """Which tokens may come next, as an array of `token_bits`, which is not modified; the end where it may come.
        Asked again before the next token it takes no time."""

    def advance(self, token: int) -> None:
        """The sequence has one more token."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing but the end may come."""

    @property
    def cost_s(self) -> float:
        """What its next mask may take of the thread's time, by the last ones; nothing where that is made."""

    @property
    def later_cost_s(self) -> float:
        """What the mask behind its next token may take; infinite where its grammar is not known to be quick."""

    @property
    def advance_s(self) -> float:
        """What its next token may take of it."""

    @property
    def error(self) -> str:
        """Why the grammar cannot be followed any further; "" as long as it can."""


class Grammar(Protocol):
    """What a text has to look like; many sequences share it."""

    def start(self) -> GrammarState:
        """The state of a sequence without tokens."""


_seldom_given = attrgetter(
    "min_tokens", "top_p_decay", "top_p_min", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "stop", "logit_bias", "bad_words", "logprobs", "prompt_logprobs", "choices", "beams", "length_penalty",
    "diversity_rate", "stop_ids", "top_p_reset_id", "early_stopping", "grammar", "shown_ids",
)  # fmt: skip
"""Looked at one by one where any of them differs from its default: looking takes a tenth of a millisecond."""
_DEFAULTS: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What one request asks for; the defaults are greedy."""

    max_tokens: int | None = None
    """How many tokens to write; None: until the model's context is full."""
    min_tokens: int = 0
    """No end and no stop before so many tokens."""
    temperature: float = 0.0
    """0, and all below `LEAST_TEMPERATURE`, takes the most likely token."""
    top_k: int = 0
    """0: no limit."""
    top_p: float = 1.0
    top_p_decay: float = 1.0
    """What top-p is multiplied with after each token."""
    top_p_min: float = 1e-6
    """Below which a decay does not bring it."""
    top_p_reset_id: int | None = None
    """The token after which it is again what it was at first."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    """Between `MIN_SEED` and `MAX_SEED`; the same one gives the same tokens, whatever else runs. None: another one for
    each request."""
    stop: str | tuple[str, ...] = ()
    """What ends the text; one string, or several. Several are what is kept."""
    stop_ids: tuple[int, ...] = ()
    ignores_eos: bool = False
    includes_stop: bool = False
    """Whether the text ends with the stop string that ended it."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens that must not be written."""
    logprobs: int | None = None
    """How many alternatives to report for each token, beside the chosen one; None: no probabilities."""
    prompt_logprobs: int | None = None
    choices: int = 1
    """How many answers to write (`n`)."""
    beams: int = 0
    """So many of the most likely texts are followed side by side; the best `choices` of them are told. 0: no search."""
    length_penalty: float = 1.0
    """What the length of a beam's text is raised to before its score is divided by it."""
    early_stopping: bool | None = False
    """True ends a search with as many ended beams as are followed, False when none is likely to become better, None
    when none can."""
    diversity_rate: float = 0.0
    """What is added, times its rank among those of its beam, to the score that a next token is chosen by."""
    grammar: Grammar | None = None
    """What the text has to look like; `Engine.grammars` compiles it."""
    shown_ids: frozenset[int] = frozenset()
    """Special tokens that the text shows nevertheless."""
    speculates: bool = True
    """Whether tokens may be guessed and then verified, where the engine does that; the tokens are the same."""
    needs_history: bool = field(init=False, repr=False, compare=False)
    """Whether the choice depends on what was written before, so that the last token has to be known first."""
    is_plain_greedy: bool = field(init=False, repr=False, compare=False)
    """Whether the largest logit decides, with nothing else to look at."""

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if type(self.stop_ids) is not tuple and isinstance(self.stop_ids, Collection):
            object.__setattr__(self, "stop_ids", tuple(self.stop_ids))
        if self.max_tokens is not None:
            _check_whole("max_tokens", self.max_tokens)
            _check(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _check(_is_number(self.temperature) and self.temperature >= 0, "temperature", self.temperature, "0 or more")
        _check_whole("top_k", self.top_k)
        _check(self.top_k >= 0, "top_k", self.top_k, "0 (no limit) or more")
        _check(_is_number(self.top_p) and 0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        if self.seed is not None:
            _check_whole("seed", self.seed)
            _check(MIN_SEED <= self.seed <= MAX_SEED, "seed", self.seed, f"between {MIN_SEED} and {MAX_SEED}")
        if _seldom_given(self) != _DEFAULTS:
            self._check_choice()
            self._check_tokens()
            self._check_output()
            self._check_beams()
        object.__setattr__(self, "needs_history", self._needs_history())  # both are asked for with every token
        object.__setattr__(self, "is_plain_greedy", self._is_plain_greedy())

    def _check_choice(self) -> None:
        """What else decides about the next token."""
        for name, value in (("top_p_decay", self.top_p_decay), ("top_p_min", self.top_p_min)):
            _check(_is_number(value) and 0 < value <= 1, name, value, "above 0 and at most 1")
        _check(_is_number(self.min_p) and 0 <= self.min_p <= 1, "min_p", self.min_p, "between 0 and 1")
        penalty = self.repetition_penalty
        _check(
            _is_number(penalty) and 1 / MAX_REPETITION_PENALTY <= penalty <= MAX_REPETITION_PENALTY,
            "repetition_penalty",
            penalty,
            f"between {1 / MAX_REPETITION_PENALTY:g} and {MAX_REPETITION_PENALTY:g}",
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _check(_is_number(value) and -2 <= value <= 2, name, value, "between -2 and 2")
        can_start = self.grammar is None or callable(getattr(self.grammar, "start", None))
        _check(can_start, "grammar", self.grammar, "one that Engine.grammars has compiled, or None")

    def _check_tokens(self) -> None:
        """What is said of single tokens, by their ids."""
        for name in ("stop_ids", "shown_ids"):
            _check(_are_ids(getattr(self, name)), name, getattr(self, name), "a collection of token ids")
        if self.top_p_reset_id is not None:
            _check_whole("top_p_reset_id", self.top_p_reset_id)
        words = self.bad_words
        are_words = isinstance(words, Collection) and not isinstance(words, str | bytes) and all(map(_are_ids, words))
        _check(are_words, "bad_words", words, "sequences of token ids, such as ((1, 2), (3,))")
        _check(len(words) <= MAX_BAD_WORDS, "bad_words", len(words), f"at most {MAX_BAD_WORDS} words")
        bias = self.logit_bias
        _check(isinstance(bias, Mapping) and _are_ids(bias.keys()), "logit_bias", bias, "numbers by token ids")
        _check(len(bias) <= MAX_BIASES, "logit_bias", len(bias), f"at most {MAX_BIASES} tokens")
        for value in bias.values():
            _check(_is_number(value), "logit_bias", value, "finite numbers")

    def _check_output(self) -> None:
        """How long the texts are, how many, and what is told of them."""
        for name in ("min_tokens", "choices", "logprobs", "prompt_logprobs"):
            if (value := getattr(self, name)) is not None:
                _check_whole("n" if name == "choices" else name, value)
        _check(self.min_tokens >= 0, "min_tokens", self.min_tokens, "0 or more")
        if self.max_tokens is not None:
            _check(self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, "at most max_tokens")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            _check(value is None or 0 <= value <= MAX_TOP_LOGPROBS, name, value, f"between 0 and {MAX_TOP_LOGPROBS}")
        are_texts = isinstance(self.stop, Collection) and all(isinstance(one, str) for one in self.stop)
        _check(are_texts, "stop", self.stop, "a string, or several")
        _check(len(self.stop) <= MAX_STOP_STRINGS, "stop", len(self.stop), f"at most {MAX_STOP_STRINGS} strings")
        _check(all(self.stop), "stop", '""', "strings that are not empty")
        _check(1 <= self.choices <= MAX_CHOICES, "n", self.choices, f"between 1 and {MAX_CHOICES}")

    def _check_beams(self) -> None:
        _check_whole("num_beams", self.beams)
        _check(0 <= self.beams <= MAX_BEAMS, "num_beams", self.beams, f"between 1 and {MAX_BEAMS}")
        for name, value in (
            ("length_penalty", self.length_penalty),
            ("beam_search_diversity_rate", self.diversity_rate),
        ):
            _check(_is_number(value) and abs(value) <= MAX_BEAM_FACTOR, name, value, f"within {MAX_BEAM_FACTOR:g} of 0")
        is_known = self.early_stopping is None or isinstance(self.early_stopping, bool)
        _check(is_known, "early_stopping", self.early_stopping, "True, False or None")
        if self.beams:
            _check(self.choices <= self.beams, "n", self.choices, f"at most the number of beams, {self.beams}")
            _check(self.grammar is None, "num_beams", self.beams, "left out where the text has to follow a grammar")

    def seed_of(self, choice: int) -> int | None:
        """What the tokens of one of the choices are drawn with; the smallest comes after the largest."""
        if self.seed is None:
            return None
        return MIN_SEED + (int(self.seed) + choice - MIN_SEED) % (MAX_SEED - MIN_SEED + 1)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature < LEAST_TEMPERATURE

    def _is_plain_greedy(self) -> bool:
        return self.is_greedy and not self.needs_history and self.logprobs is None and not self.beams

    def _needs_history(self) -> bool:
        return bool(
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.bad_words
            or self.logit_bias
            or self.min_tokens
            or self.top_p_decay != 1.0
            or self.grammar is not None
        )


def _is_number(value: float) -> bool:
    if isinstance(value, int):  # which may be too large to be looked at as a float
        return abs(value) <= sys.float_info.max
    return isinstance(value, float) and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _are_ids(value: object) -> bool:
    return isinstance(value, Collection) and all(map(_is_whole, value))


def _check_whole(name: str, value: object) -> None:
    if not _is_whole(value):
        raise SamplingError(f"'{name}' must be a whole number, found {value!r}")


def _check(is_right: bool, name: str, value: object, wanted: str) -> None:
    if not is_right:
        raise SamplingError(f"'{name}' must be {wanted}, found {value}")


_DEFAULTS = _seldom_given(SamplingParams())
