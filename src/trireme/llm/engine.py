"""The engine: receives requests, schedules steps, runs them, settles what they bring.

One thread owns the scheduler and the executor. The next step is planned and handed to the device before the results of
the one before are looked at, so the device does not wait for the host.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from typing import Any

from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.beams.group import BeamGroup
from trireme.llm.executors.port import Executor, StepResult, failure_of
from trireme.llm.grammar.mask_turns import MaskTurns
from trireme.llm.intake import Intake
from trireme.llm.options import EngineOptions
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Listener, Sequence, SequenceOutput, TokenLogprobs
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.speculation.acceptance import verified_tokens
from trireme.llm.speculation.speculator import make_speculator
from trireme.llm.stats import EngineStats, StatsRecorder
from trireme.llm.step_plan import Chunk, StepPlan
from trireme.llm.unbegun import EngineBusyError, EngineClosedError
from trireme.llm.warm_up import WarmUps

log = logging.getLogger(__name__)

_Flight = tuple[StepPlan, Any]


class EngineCore:
    """Tokens in, tokens out. `Engine` puts texts around it."""

    def __init__(
        self,
        executor: Executor,
        options: EngineOptions,
        after_step: Callable[[], None] | None = None,
        draft: Executor | None = None,
    ) -> None:
        """`after_step` is called in the engine's thread once the listeners have heard of a step.

        `draft` is the executor of the smaller model, where tokens are guessed with one. Raises ExecutorError where they
        are to be guessed and cannot be.
        """
        self._after_step = after_step
        self.executor = executor
        self.spec = executor.spec
        self.options = options
        self._scheduler = Scheduler(executor.limits)
        self._recorder = StatsRecorder()
        self._clock = options.clock
        self._ids = itertools.count(1)
        self._inbox: deque[Callable[[], None]] = deque()
        self._received: deque[Callable[[], None]] = deque()
        """What the engine's thread has taken out of the inbox, and not done yet."""
        self._wakeup = threading.Condition()
        self._intake = Intake(executor.spec, executor.limits, options.clock)
        self._sequences: dict[int, Sequence] = {}
        self._beams: dict[int, BeamGroup] = {}
        """Of those sequences that lead a beam search."""
        self._arriving = 0
        """How many sequences are in the inbox."""
        self._closing = ""
        self._has_ended = False
        """Whether nobody looks at the inbox any more."""
        self._step_began: float | None = None
        self._prepared = -math.inf
        """When the executor was last seen to prepare."""
        self._mask_turns = MaskTurns(executor.spec.vocab_size)
        self._speculator = make_speculator(executor, options, draft)
        kinds = [*executor.warm_ups(), *(self._speculator.warm_ups() if self._speculator else ())]
        self._warm_ups = WarmUps(kinds, options.warm_up)
        self._is_warm = threading.Event()
        self._thread = threading.Thread(target=self._main, name="llm-engine", daemon=True)
        self._thread.start()
        self._is_warm.wait()

    def submit(
        self,
        prompt: Iterable[int],
        params: SamplingParams,
        *listeners: Listener,
        priority: int = 0,
        timeout_s: float | None = None,
        end_ids: Iterable[int] = (),
        keys: BlockKeys | None = None,
        sequence_id: int | None = None,
        adapter: PlacedAdapter | None = None,
        request_id: int | None = None,
    ) -> int:
        """Lets a prompt be continued; the listener is called in the engine's thread. Returns the id for `cancel`.

        A beam search has a listener for each of the best beams, which hear of them in the end. `sequence_id` is one
        that `new_id` gave, for who has to know it before the first token may come; `keys` are what `keys_of` gave for
        the prompt and the adapter's salt; `request_id` is what several sequences of one request have in common, which
        share what room there is with other requests. Raises SamplingError where the prompt can never be continued,
        EngineBusyError where too many wait, EngineClosedError after the end.
        """
        if self._closing:
            raise EngineClosedError(self._closing)
        sequence = self._intake.sequence(
            self.new_id() if sequence_id is None else sequence_id,
            list(prompt),
            params,
            listeners[0],
            priority=priority,
            timeout_s=timeout_s,
            end_ids=end_ids,
            keys=keys,
            adapter=adapter,
            request_id=request_id,
        )
        self._send_in(sequence, BeamGroup(sequence, listeners) if params.beams else None)
        return sequence.sequence_id

    def keys_of(self, prompt: Items[int], salt: bytes = b"") -> BlockKeys:
        """What the prompt's blocks are called, made once for several sequences that continue it."""
        return self._intake.keys_of(prompt, salt)

    def new_id(self) -> int:
        """An id that no other sequence has."""
        return next(self._ids)

    def cancel(self, sequence_id: int, reason: FinishReason = FinishReason.CANCELLED) -> None:
        """Ends a sequence and frees its blocks; one that has ended is left alone."""
        self._post(lambda: self._end_by_id(sequence_id, reason))

    def stats(self) -> EngineStats:
        """How the engine fares at this moment; may be called from any thread."""
        return self._recorder.snapshot(self._scheduler)

    @property
    def is_alive(self) -> bool:
        """Whether steps are still run."""
        return self._thread.is_alive() and not self.ending

    @property
    def ending(self) -> str:
        """Why steps are run no more, such as a rank that has ended; "" while they are."""
        return failure_of(self.executor) or self._closing

    def stalled_s(self) -> float:
        """How long the step under way has been waited for, without the time that the executor prepared for it.

        That is left out as far as it is asked here: whoever watches the engine asks again and again.
        """
        began = self._step_began
        if self.executor.is_preparing or (self._speculator is not None and self._speculator.is_preparing):
            self._prepared = self._clock()
        return 0.0 if began is None else self._clock() - max(began, self._prepared)

    def close(self) -> None:
        """Ends every sequence and gives the device's memory back."""
        with self._wakeup:
            self._closing = self._closing or "the engine was closed"
            self._wakeup.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=30)

    def _send_in(self, sequence: Sequence, beams: BeamGroup | None = None) -> None:
        with self._wakeup:
            most = self.executor.limits.max_sequences + self.options.max_waiting
            if self.options.max_waiting and len(self._sequences) + self._arriving >= most:
                raise EngineBusyError(
                    f"the engine has {most} sequences to write, of which {self.options.max_waiting} wait for their turn"
                    " (max_waiting); try again later"
                )
            if not self._post(lambda: self._receive(sequence, beams)):
                raise EngineClosedError(self._closing)
            self._arriving += 1

    def _post(self, message: Callable[[], None]) -> bool:
        """Leaves a message for the engine's thread; False where that has ended."""
        with self._wakeup:
            if self._has_ended:
                return False
            self._inbox.append(message)
            self._wakeup.notify()
            return True

    def _main(self) -> None:
        flight: _Flight | None = None
        try:
            self._warm_ups.run_first()
            self._is_warm.set()
            while True:
                is_idle = flight is None and not self._scheduler.has_work
                self._receive_all(may_wait=is_idle and not self._warm_ups.has_more)
                if self._closing:
                    break
                if is_idle and not self._scheduler.has_work and self._warm_ups.has_more:
                    self._warm_ups.run_next()
                    continue
                flight = self._step(flight)
                if self._after_step is not None:
                    self._after_step()
        except Exception as error:
            log.exception("the engine has failed")
            self._closing = f"the engine has failed: {type(error).__name__}: {error}"
        finally:
            self._is_warm.set()
            self._closing = self._closing or "the engine was closed"
            self._end_all(self._closing)
            if self._after_step is not None:
                self._after_step()
            for part in (self._speculator, self.executor):
                try:
                    if part is not None:
                        part.close()
                except Exception:
                    log.exception("%s could not be closed", type(part).__name__)

    def _step(self, flight: _Flight | None) -> _Flight | None:
        """Schedules and begins a step, then settles the one before.

        One that verifies drafts is settled as well: how many of them are right decides about the next.
        """
        if self._speculator is not None:
            self._step_began = self._step_began or self._clock()
            self._speculator.prepare(self._scheduler.running)
        self._mask_turns.prepare(self._scheduler.running)
        plan = self._scheduler.schedule()
        following = None
        if plan is not None:
            self._recorder.step(plan)
            self._step_began = now = self._clock()
            for sequence in plan.joined:
                sequence.started = sequence.started or now
            following = (plan, self.executor.submit(plan))
        if flight is not None:
            self._settle(*flight)
        if following is not None and (not self.executor.is_async or following[0].has_drafts):
            self._settle(*following)
            following = None
        if following is None:
            self._step_began = None
            if plan is None and flight is None:
                self._refuse_stuck()
        return following

    def _receive_all(self, may_wait: bool) -> None:
        with self._wakeup:
            if may_wait:
                self._wakeup.wait_for(lambda: self._inbox or self._closing, timeout=None)
            self._received += self._inbox
            self._inbox.clear()
        while self._received:
            self._received.popleft()()
        self._end_overdue()

    def _receive(self, sequence: Sequence, beams: BeamGroup | None) -> None:
        with self._wakeup:
            self._arriving -= 1
            self._sequences[sequence.sequence_id] = sequence
        if beams is not None:
            self._beams[sequence.sequence_id] = beams
        self._scheduler.add(sequence)

    def _end_by_id(self, sequence_id: int, reason: FinishReason) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            self._finish(sequence, reason, ())

    def _end_overdue(self) -> None:
        now = self._clock()
        for sequence in [one for one in self._sequences.values() if one.deadline and one.deadline <= now]:
            self._finish(sequence, FinishReason.TIMEOUT, ())

    def _refuse_stuck(self) -> None:
        """Nothing runs and nothing can: the first in line does not fit and never will."""
        if any(sequence.awaits_mask for sequence in self._scheduler.running):
            return
        for sequence in list(self._scheduler.sequences())[:1]:
            sequence.error = "the sequence does not fit into the cache"
            self._finish(sequence, FinishReason.ERROR, ())

    def _settle(self, plan: StepPlan, handle: Any) -> None:
        result = self.executor.collect(handle)
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

    def _settle_beam(self, chunk: Chunk, report: TokenLogprobs | None, now: float) -> None:
        number = chunk.sequence.sequence_id
        if not self._scheduler.settle(chunk) or report is None:
            return
        beams, leader = self._beams[number], self._sequences[number]
        copies = beams.take(chunk.sequence, chunk.admission, report, self._scheduler)
        leader.error = beams.error
        if leader.error:
            self._finish(leader, FinishReason.ERROR, ())
        elif copies is not None:
            self._note_tokens(leader, 1, now)
            if copies:
                self.executor.copy_blocks(copies)
            if beams.is_done:
                self._finish(leader, beams.finish_reason, ())

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
            self._finish(sequence, sequence.failure, ())
        elif sequence.ends_with(token):
            sequence.stop_token = token
            self._finish(sequence, FinishReason.STOP, tokens, logprobs)
        elif sequence.grammar is not None and sequence.grammar.is_finished:
            self._finish(sequence, FinishReason.STOP, tokens, logprobs)
        elif len(sequence.tokens) >= sequence.max_size:
            self._finish(sequence, FinishReason.LENGTH, tokens, logprobs)
        else:
            times = sequence.times if sequence.params.stop else None  # a stop string may make these news the last
            prompt = sequence.told_prompt_logprobs() if sequence.output_count == 1 else None
            self._tell(
                sequence,
                SequenceOutput(tokens, logprobs, times=times, cached_tokens=sequence.cached, prompt_logprobs=prompt),
            )

    def _finish(
        self, sequence: Sequence, reason: FinishReason, tokens: tuple[int, ...], logprobs: tuple[Any, ...] = ()
    ) -> None:
        self._scheduler.finish(sequence, reason)
        if self._sequences.pop(sequence.sequence_id, None) is None:
            return
        self._beams.pop(sequence.sequence_id, None)
        if self._speculator is not None:
            self._speculator.forget(sequence)
        self._recorder.finished(sequence)
        prompt = sequence.told_prompt_logprobs()
        news = SequenceOutput(
            tokens, logprobs, reason, sequence.stop_token, sequence.error, sequence.times, sequence.cached, prompt
        )
        self._tell(sequence, news)

    def _tell(self, sequence: Sequence, news: SequenceOutput) -> None:
        try:
            sequence.listener(news)
        except Exception as error:
            sequence.fail("its listener failed", error)
            if news.finish_reason is None:
                self._finish(sequence, FinishReason.ERROR, ())

    def _end_all(self, why: str) -> None:
        with self._wakeup:
            self._has_ended = True
            self._received += self._inbox
        while self._received:
            try:
                self._received.popleft()()
            except Exception:  # as below
                log.exception("a message to the engine could not be followed")
        for sequence in list(self._sequences.values()):
            sequence.error = why
            try:
                self._finish(sequence, FinishReason.ERROR, ())
            except Exception:  # the scheduler, where it was the one to fail
                log.exception("a sequence could not be taken out of the schedule")
                self._tell(sequence, SequenceOutput((), finish_reason=FinishReason.ERROR, error=why))
