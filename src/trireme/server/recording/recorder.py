"""Switches recordings on and off, and stands in the way of calls while one runs."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import AlreadyExistsError, NotFoundError, ServingError, UnsupportedError
from trireme.core.recorded_call import RecordedCall
from trireme.core.request import InferenceRequest
from trireme.observe.prometheus import PageWriter
from trireme.observe.recent.excerpts import RecentExcerpts
from trireme.registry.model import Model
from trireme.server.audit import audited
from trireme.server.inference import Inference
from trireme.server.recording.options import read_options
from trireme.server.recording.recording import Recording
from trireme.server.shared_memory import SharedMemory

log = logging.getLogger(__name__)

DISABLED: Final = "Recording is disabled. Start the server with '--allow-recording=true' to enable it."
FETCH_BYTES: Final = 4 << 20
_CHECK_S: Final = 1.0


class CallSwitch(Protocol):
    """What calls of clients pass."""

    recorder: Recorder | None
    """While it is not None, calls go to it in place of the inference."""


class Recorder:
    """At most one recording at a time; used on the event loop's thread. Implements `observe.metrics.MetricsSource`."""

    def __init__(
        self,
        inference: Inference,
        shared_memory: SharedMemory,
        is_allowed: bool = False,
        *,
        clock: Clock = monotonic_ns,
        dice: Callable[[], float] = random.random,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self.is_allowed = is_allowed
        self.switch: CallSwitch | None = None
        """Set by whoever makes both."""
        self.excerpts: RecentExcerpts | None = None
        """Where somebody looks at what requests hold, while they are recorded."""
        self._inference = inference
        self._shared_memory = shared_memory
        self._clock = clock
        self._dice = dice
        self._call_later = call_later or _on_the_loop
        self._recording: Recording | None = None
        self.on_start: Callable[[], None] | None = None  # called when calls are recorded from now on
        self._is_check_due = False
        self._recorded_before = 0
        self._dropped_before = 0

    def infer_on(self, model: Model, request: InferenceRequest) -> None:
        """In place of the inference's: the same, seen by the recording."""
        recording = self._recording
        capture = None
        if recording is not None and not recording.end_reason:
            shared = self._shared_memory.inputs_inside(request)
            capture = recording.capture(request, model.is_sequence, shared)
            if recording.end_reason:
                self._ended(recording)
        try:
            self._inference.infer_on(model, request)
        except ServingError as error:
            if capture is not None:
                capture.refuse(error)
            raise

    def start(self, given: Mapping[str, Any]) -> Recording:
        """Begins a recording; raises ServingError where another one runs, or what is asked for makes no sense."""
        options = read_options(given)
        with audited("start", f"a recording {options.described()}"):
            self._check_allowed()
            if self._recording is not None and not self._recording.makes_way:
                raise AlreadyExistsError("the server is recording already; stop that recording, or wait for its end")
            self._forget()
            self._recording = Recording(options, self._clock, self._dice)
            if self.switch is not None:
                self.switch.recorder = self
            if self.on_start is not None:
                self.on_start()
            if self.excerpts is not None:
                self.excerpts.open()
        self._check_later()
        return self._recording

    def fetch(self, recording_id: str, received_count: int | None = None) -> tuple[list[RecordedCall], Recording]:
        """What was recorded behind the first so many calls, which have arrived, and the recording, which may be over
        now. One that is over can be asked again, until another is begun or nobody asks any more."""
        recording = self._find(recording_id)
        return recording.fetch(FETCH_BYTES, received_count), recording

    def stop(self, recording_id: str, is_discarded: bool = False) -> dict[str, Any]:
        """Ends the recording, or whichever runs for ""; what was recorded can still be fetched unless it is
        discarded."""
        with audited("stop", "the recording"):
            self._check_allowed()
            recording = self._find(recording_id)
            recording.end("it was stopped")
        self._ended(recording)
        if is_discarded:
            self._forget()
        return recording.status()

    def status(self) -> dict[str, Any]:
        """Whether recording is allowed, and what runs."""
        recording = self._recording
        is_active = recording is not None and not recording.end_reason
        told = {} if recording is None else {"recording": recording.status()}
        return {"is_allowed": self.is_allowed, "is_active": is_active, **told}

    def write(self, writer: PageWriter) -> None:
        """The metrics, where recording is allowed at all."""
        if not self.is_allowed:
            return
        recording = self._recording
        is_active = recording is not None and not recording.end_reason
        writer.family("trireme_recording_active", "gauge", "Whether requests are being recorded, 1 or 0")
        writer.sample("", int(is_active))
        writer.family("trireme_recorded_requests_total", "counter", "Requests that recordings have taken")
        writer.sample("", self._recorded_before + (0 if recording is None else recording.call_count))
        writer.family("trireme_recording_dropped_total", "counter", "Requests that recordings had no room for")
        writer.sample("", self._dropped_before + (0 if recording is None else recording.dropped_count))

    def _check_allowed(self) -> None:
        if not self.is_allowed:
            raise UnsupportedError(DISABLED)

    def _find(self, recording_id: str) -> Recording:
        recording = self._recording
        if recording is None or recording_id not in ("", recording.id):
            raise NotFoundError("there is no such recording; it may have ended because nobody fetched from it")
        return recording

    def _check_later(self) -> None:
        """One look is due at a time, however often recordings are begun."""
        if not self._is_check_due:
            self._is_check_due = True
            self._call_later(_CHECK_S, self._check_time)

    def _check_time(self) -> None:
        self._is_check_due = False
        recording = self._recording
        if recording is None:
            return
        recording.check_time()
        if recording.end_reason:
            self._ended(recording)
        if recording.is_forgotten:
            self._forget()
        else:
            self._check_later()

    def _ended(self, recording: Recording) -> None:
        """Takes the recording out of the way of calls."""
        if self.excerpts is not None:
            self.excerpts.close()
        if self.switch is not None and self.switch.recorder is not None:
            self.switch.recorder = None
            log.info(
                "recording ended: %s; %d of %d requests recorded, %d dropped for want of room",
                recording.end_reason,
                recording.call_count,
                recording.seen_count,
                recording.dropped_count,
            )

    def _forget(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            self._recorded_before += recording.call_count
            self._dropped_before += recording.dropped_count


def _on_the_loop(delay_s: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(delay_s, call)
