"""What decides when the next request is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any, Final

from trireme.tools.perf.load.busy_polling import BusyPolling
from trireme.tools.perf.load.calls import DELAYED, Call, Transport
from trireme.tools.perf.load.records import Recorder
from trireme.tools.perf.load.schedules import LoadLevel
from trireme.tools.perf.load.sources import RequestSource

_TOLERATED_DELAY_NS: Final = 1_000_000
_MOST_PER_TURN: Final = 64

Check = Callable[[Call, Any], str | None]
"""Looks at an answer; what is wrong with it."""


class Driver:
    """Takes the reports of the transport, and keeps the load up until told otherwise."""

    transport: Transport

    def __init__(self, source: RequestSource, recorder: Recorder, check: Check | None = None) -> None:
        self._source = source
        self._recorder = recorder
        self._check = check
        self._budget: int | None = None
        self.error: str | None = None
        self.outstanding = 0
        self.is_stopping = False

    def configure(self, level: LoadLevel) -> None:
        """From now on so much."""
        self._budget = level.budget

    def stop(self) -> None:
        """Nothing new is sent, but for the ends of sequences."""
        self.is_stopping = True

    def wait_s(self) -> float | None:
        """How long the loop may sleep; None until something comes."""
        return None

    def fire(self) -> None:
        """Sends what is due."""

    def responded(self, call: Call, now_ns: int, body: Any) -> None:
        call.times.append(now_ns)
        if body is not None:
            call.outputs.append(body)

    def finished(self, call: Call, now_ns: int, body: Any) -> None:
        self.outstanding -= 1
        times = call.times
        if times:
            count, end_ns = len(times), times[-1]
            if body is not None:  # the empty last response of a stream
                times.append(now_ns)
                call.outputs.append(body)
        else:
            count, end_ns = 1, now_ns
            if body is not None:
                call.outputs.append(body)
        fault = None if self._check is None else self._fault(self._check, call, body)
        if fault is None:
            self._recorder.add(call, end_ns, count)
        if times:
            call.times = []
        if call.outputs:
            call.outputs = []
        if fault is None:
            self._released(call)
        else:
            self._broke(call, fault)

    def _fault(self, check: Check, call: Call, body: Any) -> str | None:
        """What is wrong with an answer; one that cannot be looked at is wrong as well."""
        try:
            return check(call, body)
        except Exception as error:  # it is whatever a server sends
            return f"the answer cannot be compared: {type(error).__name__}: {error}"

    def failed(self, call: Call, reason: str) -> None:
        self.outstanding -= 1
        self._broke(call, reason)

    def _broke(self, call: Call, reason: str) -> None:
        if self.error is None:
            self.error = reason
        self._lost(call)

    def _released(self, call: Call) -> None:
        """The call is free for another request."""

    def _lost(self, call: Call) -> None:
        """The call has failed."""

    def _take_budget(self) -> bool:
        """Whether one more request may be sent."""
        if self.is_stopping or self.error is not None:
            return False
        if self._budget is None:
            return True
        self._budget -= 1
        return self._budget >= 0

    def _send(self, call: Call) -> None:
        self.outstanding += 1
        self.transport.send(call)


class ClosedLoop(Driver):
    """A number of requests that are always under way."""

    _active = 0
    _target = 0

    def configure(self, level: LoadLevel) -> None:
        super().configure(level)
        self._target = level.concurrency
        while self._active < self._target and self._take_budget():
            self._active += 1
            call = Call()
            self._source.fill(call)
            self._send(call)

    def _released(self, call: Call) -> None:
        if self._active <= self._target and self._take_budget():
            self._source.fill(call)
            self._send(call)
        elif self.error is None and self._source.close(call):
            self._send(call)
        else:
            self._active -= 1

    def _lost(self, call: Call) -> None:
        self._active -= 1


class OpenLoop(Driver):
    """Requests at their time, whatever has come back; a latency begins when its request was due."""

    def __init__(
        self,
        source: RequestSource,
        recorder: Recorder,
        check: Check | None = None,
        *,
        sequences: int | None = None,
        is_serial: bool = False,
    ) -> None:
        super().__init__(source, recorder, check)
        self._schedule: Iterator[int] = iter(())
        self._begin_ns = 0
        self._due_ns: int | None = None
        self._gap_ns = 0
        self._looked_ns = 0
        self._polling = BusyPolling()
        self._free: list[Call] = []
        self._slots = [_Slot() for _ in range(sequences or 0)]
        self._next_slot = 0
        self._is_serial = is_serial

    def configure(self, level: LoadLevel) -> None:
        super().configure(level)
        assert level.schedule is not None
        self._schedule = level.schedule.times()
        self._begin_ns = monotonic_ns()
        self._advance()

    def wait_s(self) -> float | None:
        if self._due_ns is None or self.is_stopping or self.error is not None:
            return None
        self._looked_ns = monotonic_ns()
        return self._polling.sleep_ns(self._looked_ns, self._due_ns, self._gap_ns) / 1e9

    def fire(self) -> None:
        now_ns = monotonic_ns()
        self._polling.woke(now_ns)
        for _ in range(_MOST_PER_TURN):
            due_ns = self._due_ns
            if due_ns is None or due_ns > now_ns or not self._take_budget():
                return
            self._advance()
            if self._slots:
                self._send_in_sequence(due_ns)
            else:
                call = self._free.pop() if self._free else Call()
                call.flags = 0
                self._source.fill(call)
                self._dispatch(call, due_ns)

    def stop(self) -> None:
        super().stop()
        for slot in self._slots:
            if not slot.is_busy:
                self._end_sequence(slot)

    def _advance(self) -> None:
        offset = next(self._schedule, None)
        before_ns = self._due_ns
        self._due_ns = None if offset is None else self._begin_ns + offset
        if before_ns is not None and self._due_ns is not None:
            self._gap_ns = self._due_ns - before_ns

    def _dispatch(self, call: Call, due_ns: int) -> None:
        call.due_ns = due_ns
        # A late wake-up is the machine's doing, and is in the latency; a delay means that the loop had no time to wait.
        if self._looked_ns - due_ns > _TOLERATED_DELAY_NS:
            call.flags |= DELAYED
        self._send(call)

    def _send_in_sequence(self, due_ns: int) -> None:
        slot = self._slots[self._next_slot]
        self._next_slot = (self._next_slot + 1) % len(self._slots)
        if self._is_serial and slot.is_busy:
            slot.waiting.append(due_ns)
        else:
            self._fill_from(slot, due_ns)

    def _fill_from(self, slot: _Slot, due_ns: int) -> None:
        call = self._free.pop() if self._free else Call()
        call.context = slot.sequence
        self._source.fill(call)
        slot.sequence, call.context = call.context, slot
        slot.under_way += 1
        self._dispatch(call, due_ns)

    def _released(self, call: Call) -> None:
        slot, call.context = call.context, None
        self._free.append(call)
        if slot is None:
            return
        slot.under_way -= 1
        if self.is_stopping:
            if not slot.is_busy:
                self._end_sequence(slot)
        elif slot.waiting and self.error is None:
            self._fill_from(slot, slot.waiting.popleft())

    def _end_sequence(self, slot: _Slot) -> None:
        call = Call()
        call.context = slot.sequence
        if slot.sequence is not None and self.error is None and self._source.close(call):
            slot.sequence = None
            call.due_ns = monotonic_ns()
            self._send(call)


class _Slot:
    """One of the sequences that are sent at a rate."""

    __slots__ = ("sequence", "under_way", "waiting")

    def __init__(self) -> None:
        self.sequence: Any = None
        self.under_way = 0
        self.waiting: deque[int] = deque()

    @property
    def is_busy(self) -> bool:
        return self.under_way > 0


class PeriodicLoop(Driver):
    """Adds requests whenever those added last have brought a number of responses; each is sent once."""

    def configure(self, level: LoadLevel) -> None:
        super().configure(level)
        self._step = level.step
        self._period = level.period
        self._newest: set[Call] = set()
        self._add(level.concurrency)

    def responded(self, call: Call, now_ns: int, body: Any) -> None:
        super().responded(call, now_ns, body)
        if len(call.times) == self._period:
            self._passed(call)

    def _released(self, call: Call) -> None:
        self._passed(call)

    def _passed(self, call: Call) -> None:
        self._newest.discard(call)
        if not self._newest:
            self._add(self._step)

    def _add(self, count: int) -> None:
        added: list[Call] = []
        while len(added) < count and self._take_budget():
            call = Call()
            self._source.fill(call)
            added.append(call)
        self._newest.update(added)
        for call in added:
            self._send(call)
