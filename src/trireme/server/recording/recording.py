"""One recording under way: calls are captured, wait to be fetched, and are counted."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from trireme.core.clock import Clock
from trireme.core.errors import InvalidArgumentError
from trireme.core.recorded_call import RecordedCall
from trireme.core.request import InferenceRequest
from trireme.server.recording.capture import Capture
from trireme.server.recording.options import (
    BUFFER_BYTES,
    BUFFER_CALLS,
    DRAIN_S,
    LEASE_S,
    REPLACED_AFTER_S,
    RecordingOptions,
)
from trireme.server.recording.sampling import CallSampler

_SECOND_NS = 1_000_000_000


class Recording:
    """Takes calls until a limit is reached or somebody ends it; then those under way are waited for a little."""

    def __init__(self, options: RecordingOptions, clock: Clock, dice: Callable[[], float]) -> None:
        self.id = uuid.uuid4().hex
        self.options = options
        self.began_at_s = time.time()
        self.end_reason = ""
        """Why no more calls are taken; "" while they are."""
        self.call_count = 0
        self.seen_count = 0
        self.dropped_count = 0
        self._clock = clock
        self._sampler = CallSampler(options.sample, options.models, dice)
        self._began_ns = clock()
        self._fetched_ns = self._began_ns
        self._ended_ns = 0
        self._done: deque[tuple[RecordedCall, int]] = deque()  # kept until the client says that it has them
        self._given_count = 0  # of them, in the answer before
        self._received_count = 0
        self._running: dict[Capture, None] = {}
        self._held_bytes = 0  # of calls that no client has yet
        self._total_bytes = 0

    def capture(self, request: InferenceRequest, is_sequence: bool, shared: Sequence[str]) -> Capture | None:
        """Begins to record the call, where it is to be recorded and there is room for it."""
        self.seen_count += 1
        if not self._sampler.wants(request, is_sequence):
            return None
        if self._held_bytes > BUFFER_BYTES or len(self._done) + len(self._running) >= BUFFER_CALLS:
            self.dropped_count += 1
            return None
        options = self.options
        at_ns = self._clock() - self._began_ns
        limit_bytes = options.max_call_bytes
        capture = Capture(
            request, at_ns, limit_bytes, options.has_answers, shared, self._clock, self._grow, self._finish
        )
        self._grow(capture.size_bytes, capture.input_bytes)
        self._running[capture] = None
        self.call_count += 1
        if self.call_count >= options.limit:
            self.end(f"{self.call_count} requests are recorded, which is its limit")
        elif self._total_bytes >= options.max_bytes:
            self.end(f"{self._total_bytes} bytes are recorded, and its limit is {options.max_bytes}")
        return capture

    def end(self, reason: str) -> None:
        """No more calls are taken."""
        if not self.end_reason:
            self.end_reason = reason
            self._ended_ns = self._clock()

    def check_time(self) -> None:
        """Ends what has lasted long enough, or what nobody fetches."""
        now_ns = self._clock()
        if now_ns - self._began_ns > self.options.duration_s * _SECOND_NS:
            self.end(f"its {self.options.duration_s:g} s are over")
        elif now_ns - self._fetched_ns > LEASE_S * _SECOND_NS:
            self.end(f"nobody has fetched from it for {LEASE_S:g} s")

    @property
    def is_forgotten(self) -> bool:
        """Whether nobody will fetch what is left of it."""
        return self._is_left_alone(LEASE_S)

    @property
    def makes_way(self) -> bool:
        """Whether another one may be begun in its place."""
        return self.is_over or self._is_left_alone(REPLACED_AFTER_S)

    def _is_left_alone(self, seconds: float) -> bool:
        return bool(self.end_reason) and self._clock() - self._fetched_ns > seconds * _SECOND_NS

    def fetch(self, max_bytes: int, received_count: int | None = None) -> list[RecordedCall]:
        """Calls that are done, at least one where there is any, behind the first `received_count` of the recording,
        which are let go; None says that whatever was given before has arrived. Raises InvalidArgumentError."""
        self._let_go(received_count)
        self._fetched_ns = self._clock()
        if self.end_reason and self._fetched_ns - self._ended_ns > DRAIN_S * _SECOND_NS:
            self._give_up_waiting()
        calls, size = [], 0
        for call, call_bytes in self._done:
            if size >= max_bytes:
                break
            calls.append(call)
            size += call_bytes
        self._given_count = len(calls)
        return calls

    @property
    def is_over(self) -> bool:
        """Whether everything has arrived at the client, and nothing more comes."""
        return bool(self.end_reason) and not self._done and not self._running

    def status(self) -> dict[str, Any]:
        """In numbers."""
        return {
            "id": self.id,
            "began_at_s": self.began_at_s,
            "seconds": round((self._clock() - self._began_ns) / _SECOND_NS, 3),
            "sample": self.options.sample,
            "models": sorted(self.options.models),
            "seen": self.seen_count,
            "recorded": self.call_count,
            "dropped": self.dropped_count,
            "bytes": self._total_bytes,
            "end_reason": self.end_reason,
        }

    def _let_go(self, received_count: int | None) -> None:
        count = self._given_count if received_count is None else received_count - self._received_count
        if not 0 <= count <= self._given_count:
            most = self._received_count + self._given_count
            raise InvalidArgumentError(
                f"'received' of a recording is how many of its calls have arrived: between {self._received_count}, "
                f"which were told before, and {most}, which were sent, not {received_count}"
            )
        for _ in range(count):
            self._held_bytes -= self._done.popleft()[1]
        self._received_count += count
        self._given_count -= count

    def _grow(self, size_bytes: int, counted_bytes: int) -> bool:
        """What has begun may take twice as much as what is let in."""
        if self._held_bytes + size_bytes > 2 * BUFFER_BYTES:
            return False
        self._held_bytes += size_bytes
        self._total_bytes += counted_bytes
        return True

    def _finish(self, capture: Capture) -> None:
        del self._running[capture]
        self._done.append((capture.recorded(), capture.size_bytes))

    def _give_up_waiting(self) -> None:
        for capture in self._running:
            capture.is_done = True
            self._done.append((capture.recorded(is_finished=False), capture.size_bytes))
        self._running.clear()
