"""One beam search among the sequences of an engine: which sequence writes which beam, and what its listeners hear."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Protocol

from trireme.llm.beams.search import BeamSearch, Hypothesis
from trireme.llm.beams.sharing import BlockCopy, Move
from trireme.llm.request import FinishReason, Listener, Sequence, SequenceOutput, TokenLogprobs


class BeamScheduler(Protocol):
    """What a search asks of the scheduler; lists of beams are not modified."""

    def spread(self, beams: Items[Sequence]) -> None:
        """The first of them is computed: the others go on from what they share with it."""

    def move(self, moves: Items[Move]) -> list[BlockCopy]:
        """Lets beams go on; returns which blocks have to be copied before the next step."""

    def suspend(self, beams: Items[Sequence]) -> None:
        """Beams that do not go on."""


class BeamGroup:
    """Owned by the engine's thread. All its sequences have the id of the first."""

    def __init__(self, leader: Sequence, listeners: Items[Listener]) -> None:
        """A listener for each choice; the leader is told what ends the search from outside."""
        self._listeners = listeners
        leader.listener = self._tell
        others = [_peer_of(leader) for _ in range(leader.params.beams - 1)]
        self.peers = [leader, *others]
        for peer in self.peers:
            peer.peers = self.peers
        self._search = BeamSearch(leader.params, leader.end_ids, leader.max_size - leader.prompt_size)
        self._writers = [leader]
        """Who writes each beam of the search."""
        self._reports: dict[Sequence, tuple[int, TokenLogprobs]] = {}

    @property
    def is_done(self) -> bool:
        return self._search.is_done

    @property
    def error(self) -> str:
        """Why it cannot go on."""
        return next((peer.error for peer in self.peers if peer.error), "")

    @property
    def finish_reason(self) -> FinishReason:
        """Of the best beam, once it is done."""
        return _reason_of(self._search.finished[0])

    def take(
        self, writer: Sequence, admission: int, report: TokenLogprobs, scheduler: BeamScheduler
    ) -> list[BlockCopy] | None:
        """Takes the candidates of one beam; returns the blocks to copy once all beams have a token more, else None."""
        if admission != writer.admissions or writer.slot < 0 or self.error:
            return None  # of tokens, or in blocks, that it does not have any more, or of no use
        self._reports[writer] = admission, report
        waiting = [one for one in self._writers if one.is_suspended]
        if waiting:  # after others have needed the blocks
            scheduler.spread([writer, *waiting])
            return None
        if any(self._reports.get(one, (-1,))[0] != one.admissions for one in self._writers):
            return None
        return self._advance(scheduler)

    def _advance(self, scheduler: BeamScheduler) -> list[BlockCopy]:
        reports = [self._reports[one][1] for one in self._writers]
        self._reports.clear()
        steps = self._search.advance(reports, self.peers[0].candidate_count)
        if self._search.is_done:
            if not self._search.finished:
                self.peers[0].error = "no beam can go on: every next token is forbidden"
            return []
        moves = self._assign(steps)
        idle = [one for one in self.peers if one not in [move.beam for move in moves]]
        self._writers = [move.beam for move in moves]
        self.peers[:] = [*self._writers, *idle]
        scheduler.suspend(idle)
        return scheduler.move(moves)

    def _assign(self, steps: Items[tuple[int, int]]) -> list[Move]:
        """Who goes on from another stays the same sequence where it can, so that its blocks stay too."""
        parents = [self._writers[parent] for parent, _ in steps]
        spare = [one for one in self.peers if one not in parents]
        moves, used = [], set()
        for parent, (_, token) in zip(parents, steps, strict=True):
            beam = spare.pop() if parent in used else parent
            used.add(parent)
            moves.append(Move(beam, parent, token))
        return moves

    def _tell(self, output: SequenceOutput) -> None:
        """The leader's last output, which is all that comes: each choice hears of its end, also where the listener of
        another fails; raises what the first has failed with."""
        told = self._outputs_of_choices(output)
        failures: list[Exception] = []
        for listener, own in zip(self._listeners, told, strict=True):
            try:
                listener(own)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _outputs_of_choices(self, output: SequenceOutput) -> list[SequenceOutput]:
        if not self._search.is_done or output.error:
            return [output._replace(token_ids=(), logprobs=())] * len(self._listeners)
        return [
            output._replace(
                token_ids=found.beam.tokens,
                logprobs=found.beam.logprobs,
                finish_reason=_reason_of(found),
                stop_token=found.beam.tokens[-1] if found.has_ended else None,
                score=found.score,
            )
            for found in self._found()
        ]

    def _found(self) -> list[Hypothesis]:
        """As many as are listened to; where fewer texts are possible, the last of them again."""
        found = self._search.finished[: len(self._listeners)]
        return found + found[-1:] * (len(self._listeners) - len(found))


def _peer_of(leader: Sequence) -> Sequence:
    return replace(leader, tokens=leader.tokens.copy(), keys=leader.keys.copy(), blocks=[], is_suspended=True)


def _reason_of(found: Hypothesis) -> FinishReason:
    return FinishReason.STOP if found.has_ended else FinishReason.LENGTH
