"""The engine: receives requests, schedules steps, runs them, settles what they bring.

One thread owns the scheduler and the executor. The next step is planned and handed to the device before the results of
the one before are looked at, so the device does not wait for the host.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from typing import Any

from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.admission_errors import EngineBusyError, EngineClosedError
from trireme.llm.arrivals.inbox import Inbox
from trireme.llm.arrivals.intake import Intake
from trireme.llm.beams.group import BeamGroup
from trireme.llm.executors.port import Executor, failure_of
from trireme.llm.grammar.mask_turns import MaskTurns
from trireme.llm.options import EngineOptions
from trireme.llm.outcome import Outcome
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Listener, Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.speculation.speculator import make_speculator
from trireme.llm.stats import EngineStats, StatsRecorder
from trireme.llm.step_plan import StepPlan
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
        self._inbox = Inbox()
        self._intake = Intake(executor.spec, executor.limits, options.clock)
        self._arriving = 0
        """How many sequences are in the inbox."""
        self._counting = threading.Lock()
        """Of those, and of those that have come out of it."""
        self._step_began: float | None = None
        self._prepared = -math.inf
        """When the executor was last seen to prepare."""
        self._mask_turns = MaskTurns(executor.spec.vocab_size, executor.limits.chooses_later)
        self._speculator = make_speculator(executor, options, draft)
        self._outcome = Outcome(executor, self._scheduler, self._speculator, self._recorder, options.clock)
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
        if self._inbox.closing:
            raise EngineClosedError(self._inbox.closing)
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
        self._inbox.post(lambda: self._outcome.end_by_id(sequence_id, reason))

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
        return failure_of(self.executor) or self._inbox.closing

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
        self._inbox.close("the engine was closed")
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=30)

    def _send_in(self, sequence: Sequence, beams: BeamGroup | None = None) -> None:
        with self._counting:
            most = self.executor.limits.max_sequences + self.options.max_waiting
            if self.options.max_waiting and len(self._outcome) + self._arriving >= most:
                raise EngineBusyError(
                    f"the engine has {most} sequences to write, of which {self.options.max_waiting} wait for their turn"
                    " (max_waiting); try again later"
                )
            if not self._inbox.post(lambda: self._receive(sequence, beams)):
                raise EngineClosedError(self._inbox.closing)
            self._arriving += 1

    def _main(self) -> None:
        flight: _Flight | None = None
        try:
            self._warm_ups.run_first()
            self._is_warm.set()
            while True:
                is_idle = flight is None and not self._scheduler.has_work
                self._inbox.do_all(may_wait=is_idle and not self._warm_ups.has_more)
                self._outcome.end_overdue()
                if self._inbox.closing:
                    break
                if is_idle and not self._scheduler.has_work and self._warm_ups.has_more:
                    self._warm_ups.run_next()
                    continue
                flight = self._step(flight)
                if self._after_step is not None:
                    self._after_step()
        except Exception as error:
            log.exception("the engine has failed")
            self._inbox.close(f"the engine has failed: {type(error).__name__}: {error}")
        finally:
            self._is_warm.set()
            self._inbox.close("the engine was closed")
            self._inbox.end()
            self._outcome.end_all(self._inbox.closing)
            if self._after_step is not None:
                self._after_step()
            for part in (self._speculator, self.executor):
                try:
                    if part is not None:
                        part.close()
                except Exception:
                    log.exception("%s could not be closed", type(part).__name__)

    def _step(self, flight: _Flight | None) -> _Flight | None:
        """Schedules and begins a step, then settles the one before, or before that where most wait for it; what decides
        about the tokens of the step that has begun is known then.

        One that verifies drafts is settled as well: how many of them are right decides about the next.
        """
        if flight is not None and flight[0].is_awaited:
            self._settle(*flight)
            flight = None
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
        if following is not None and self.executor.limits.chooses_later:
            self.executor.choose(following[1])
        if following is not None and (not self.executor.is_async or following[0].has_drafts):
            self._settle(*following)
            following = None
        if following is None:
            self._step_began = None
            if plan is None and flight is None:
                self._refuse_stuck()
        return following

    def _settle(self, plan: StepPlan, handle: Any) -> None:
        self._outcome.settle(plan, self.executor.collect(handle))

    def _receive(self, sequence: Sequence, beams: BeamGroup | None) -> None:
        with self._counting:
            self._arriving -= 1
            self._outcome.add(sequence, beams)
        self._scheduler.add(sequence)

    def _refuse_stuck(self) -> None:
        """Nothing runs and nothing can: the first in line does not fit and never will."""
        if any(sequence.awaits_mask for sequence in self._scheduler.running):
            return
        for sequence in list(self._scheduler.sequences())[:1]:
            self._outcome.refuse(sequence, "the sequence does not fit into the cache")
