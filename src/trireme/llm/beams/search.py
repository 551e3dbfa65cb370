"""Which beams go on with which tokens, which have ended, and when the search is over; with neither blocks nor steps.

It comes to what `generate(num_beams=...)` of transformers comes to.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Beam:
    """A text that is followed: the sum of its log probabilities, and its tokens since the prompt."""

    total: float = 0.0
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that has ended."""

    score: float
    beam: Beam
    has_ended: bool
    """By a token that ends texts; otherwise there was no room for more."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A beam with a token more."""

    ranking: float
    """What it is chosen by: its sum, with the reward of diversity."""
    total: float
    parent: int
    place: int
    """Of the token among the candidates of its beam, the likeliest first."""
    token: int


@dataclass(slots=True)
class BeamSearch:
    """The beams of one prompt."""

    params: SamplingParams
    end_ids: Collection[int]
    max_output: int
    """So many tokens can be written."""
    beams: list[Beam] = field(default_factory=lambda: [Beam()])
    """Those that are followed, the best first; one at the beginning."""
    finished: list[Hypothesis] = field(default_factory=list)
    """The best that have ended, the best first."""
    is_done: bool = False

    def advance(self, reports: Items[TokenLogprobs], candidate_count: int) -> list[tuple[int, int]]:
        """Takes the likeliest next tokens of each beam; returns for each new beam its parent's number and its token."""
        length = len(self.beams[0].tokens) + 1
        candidates = heapq.nsmallest(candidate_count, self._candidates(reports), key=lambda one: -one.ranking)
        going_on: list[_Candidate] = []
        can_improve = self.is_open
        for rank, candidate in enumerate(candidates):
            has_ended = self._ends(candidate.token, length)
            if not has_ended and length < self.max_output:
                going_on.append(candidate)
            elif rank < self.params.beams and can_improve:
                score = candidate.total / float(length**self.params.length_penalty)
                self._keep(Hypothesis(score, self._grown(candidate, reports), has_ended))
        going_on = going_on[: self.params.beams]
        self.beams = [self._grown(one, reports) for one in going_on]
        self.is_done = not going_on or not self.is_open or not self._may_improve(length)
        return [(one.parent, one.token) for one in going_on]

    @property
    def is_open(self) -> bool:
        """Whether beams that end are still taken."""
        return len(self.finished) < self.params.beams or self.params.early_stopping is not True

    def _candidates(self, reports: Items[TokenLogprobs]) -> list[_Candidate]:
        rate = self.params.diversity_rate
        return [
            _Candidate(beam.total + logprob + rate * place, beam.total + logprob, parent, place, token)
            for parent, (beam, report) in enumerate(zip(self.beams, reports, strict=True))
            for place, (token, logprob) in enumerate(report.top)
            if logprob > -math.inf
        ]

    def _ends(self, token: int, length: int) -> bool:
        return token in self.end_ids and length > self.params.min_tokens

    def _grown(self, candidate: _Candidate, reports: Items[TokenLogprobs]) -> Beam:
        beam, tokens = self.beams[candidate.parent], (*self.beams[candidate.parent].tokens, candidate.token)
        if self.params.logprobs is None:
            return Beam(candidate.total, tokens)
        top = reports[candidate.parent].top
        found = TokenLogprobs(top[candidate.place][1], candidate.place + 1, top[: self.params.logprobs])
        return Beam(candidate.total, tokens, (*beam.logprobs, found))

    def _keep(self, hypothesis: Hypothesis) -> None:
        self.finished.append(hypothesis)
        self.finished.sort(key=lambda one: -one.score)  # of equal ones the earlier stays
        del self.finished[self.params.beams :]

    def _may_improve(self, length: int) -> bool:
        """Whether the best beam could still end better than the worst that is kept."""
        if len(self.finished) < self.params.beams:
            return True
        penalty = self.params.length_penalty
        if self.params.early_stopping is None and penalty > 0:
            length = self.max_output
        return self.beams[0].total / float(length**penalty) > self.finished[-1].score
