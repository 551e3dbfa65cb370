"""What steps bring: tokens for the sequences under way, their ends, and whoever listens told of both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Any

from trireme.llm.beams.group import BeamGroup
from trireme.llm.executors.port import Executor, StepResult
from trireme.llm.request import FinishReason, Sequence, SequenceOutput, TokenLogprobs
from trireme.llm.scheduler import Scheduler
from trireme.llm.speculation.acceptance import verified_tokens
from trireme.llm.speculation.speculator import Speculator
from trireme.llm.stats import StatsRecorder
from trireme.llm.step_plan import Chunk, StepPlan

log = logging.getLogger(__name__)


class Outcome:
    """Owns the list of all sequences that have not ended. Belongs to the engine's thread."""

    def __init__(
        self,
        executor: Executor,
        scheduler: Scheduler,
        speculator: Speculator | None,
        recorder: StatsRecorder,
        clock: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._scheduler = scheduler
        self._speculator = speculator
        self._recorder = recorder
        self._clock = clock
        self._sequences: dict[int, Sequence] = {}
        self._beams: dict[int, BeamGroup] = {}
        """Of those sequences that lead a beam search."""

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, sequence: Sequence, beams: BeamGroup | None) -> None:
        """One that begins; `beams` are told of where it leads a search."""
        self._sequences[sequence.sequence_id] = sequence
        if beams is not None:
            self._beams[sequence.sequence_id] = beams

    def settle(self, plan: StepPlan, result: StepResult) -> None:
        """Takes over what a step has brought."""
        now = self._clock()
        index = 0
        for number, chunk in enumerate(plan.chunks):
            if number in result.prompt_logprobs:
                chunk.sequence.note_prompt_logprobs(chunk.start, result.prompt_logprobs[number])
            if not chunk.samples:
                self._scheduler.settle(chunk)
                continue
            count = 1 + len(chunk.drafts)
            if chunk.sequence.peers:
                self._settle_beam(chunk, result.logprobs.get(index), now)
            else:
                tokens = verified_tokens(chunk, result.tokens[index : index + count])
                if self._scheduler.settle(chunk, tokens):
                    if chunk.drafts:
                        self._note_drafts(chunk, len(tokens) - 1)
                    self._deliver(chunk.sequence, tokens, index, result, now)
            index += count

    def end_by_id(self, sequence_id: int, reason: FinishReason) -> None:
        """Ends a sequence; one that has ended is left alone."""
        if (sequence := self._sequences.get(sequence_id)) is not None:
            self._finish(sequence, reason)

    def end_overdue(self) -> None:
        """Ends those whose time is over."""
        now = self._clock()
        for sequence in [one for one in self._sequences.values() if one.deadline and one.deadline <= now]:
            self._finish(sequence, FinishReason.TIMEOUT)

    def refuse(self, sequence: Sequence, why: str) -> None:
        """Ends one that cannot go on."""
        sequence.error = why
        self._finish(sequence, FinishReason.ERROR)

    def end_all(self, why: str) -> None:
        """Whatever fails at that, everybody hears of the end."""
        for sequence in list(self._sequences.values()):
            try:
                self.refuse(sequence, why)
            except Exception:  # the scheduler, where it was the one to fail
                log.exception("a sequence could not be taken out of the schedule")
                self._tell(sequence, SequenceOutput((), finish_reason=FinishReason.ERROR, error=why))

    def _settle_beam(self, chunk: Chunk, report: TokenLogprobs | None, now: float) -> None:
        number = chunk.sequence.sequence_id
        if not self._scheduler.settle(chunk) or report is None:
            return
        beams, leader = self._beams[number], self._sequences[number]
        copies = beams.take(chunk.sequence, chunk.admission, report, self._scheduler)
        leader.error = beams.error
        if leader.error:
            self._finish(leader, FinishReason.ERROR)
        elif copies is not None:
            self._note_tokens(leader, 1, now)
            if copies:
                self._executor.copy_blocks(copies)
            if beams.is_done:
                self._finish(leader, beams.finish_reason)

    def _note_tokens(self, sequence: Sequence, count: int, now: float) -> None:
        if not sequence.first_token:
            sequence.first_token = now
        self._recorder.tokens(sequence, count, now)
        sequence.last_token = now

    def _note_drafts(self, chunk: Chunk, accepted: int) -> None:
        if self._speculator is not None:
            self._recorder.drafts(len(chunk.drafts), accepted)
            self._speculator.note(chunk, accepted)

    def _deliver(self, sequence: Sequence, found: Items[int], index: int, result: StepResult, now: float) -> None:
        """Tells of the tokens that a step brought, of which the last alone may end the sequence."""
        self._note_tokens(sequence, len(found), now)
        tokens, token = tuple(found), found[-1]
        logprobs: tuple[TokenLogprobs, ...] = ()
        if result.logprobs:
            rows = range(index, index + len(found))
            logprobs = tuple(result.logprobs[row] for row in rows if row in result.logprobs)
        if sequence.grammar is not None:
            sequence.advance_grammar(token)
        if sequence.error:
            self._finish(sequence, sequence.failure)
        elif sequence.ends_with(token):
            sequence.stop_token = token
            self._finish(sequence, FinishReason.STOP, tokens, logprobs)
        elif sequence.grammar is not None and sequence.grammar.is_finished:
            self._finish(sequence, FinishReason.STOP, tokens, logprobs)
        elif len(sequence.tokens) >= sequence.max_size:
            self._finish(sequence, FinishReason.LENGTH, tokens, logprobs)
        else:
            times = sequence.times if sequence.params.stop else None  # a stop string may make this output the last
            prompt = sequence.told_prompt_logprobs() if sequence.output_count == 1 else None
            self._tell(
                sequence,
                SequenceOutput(tokens, logprobs, times=times, cached_tokens=sequence.cached, prompt_logprobs=prompt),
            )

    def _finish(
        self, sequence: Sequence, reason: FinishReason, tokens: tuple[int, ...] = (), logprobs: tuple[Any, ...] = ()
    ) -> None:
        self._scheduler.finish(sequence, reason)
        if self._sequences.pop(sequence.sequence_id, None) is None:
            return
        self._beams.pop(sequence.sequence_id, None)
        if self._speculator is not None:
            self._speculator.forget(sequence)
        self._recorder.finished(sequence)
        prompt = sequence.told_prompt_logprobs()
        output = SequenceOutput(
            tokens, logprobs, reason, sequence.stop_token, sequence.error, sequence.times, sequence.cached, prompt
        )
        self._tell(sequence, output)

    def _tell(self, sequence: Sequence, output: SequenceOutput) -> None:
        try:
            sequence.listener(output)
        except Exception as error:
            sequence.fail("its listener failed", error)
            if output.finish_reason is None:
                self._finish(sequence, FinishReason.ERROR)
