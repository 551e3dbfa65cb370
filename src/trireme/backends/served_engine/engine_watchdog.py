"""The thread beside an engine: it ends requests that nobody waits for, and the process where no more steps come."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from trireme.backends.python.pb_utils.errors import ErrorCode, TritonError
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.native_hang import HangTimer

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.05
_GOODBYE_S = 1.0
"""So long clients have to be told why the engine has ended."""
_GATHERED_S = 0.1
"""Answers are gathered and sent together, a moment after they are written."""
_JOIN_S = 5.0
_HUNG_EXIT_CODE = 75


class Steps(Protocol):
    """What is looked at of an engine."""

    @property
    def is_alive(self) -> bool:
        """Whether steps are still run."""

    @property
    def ending(self) -> str:
        """Why they are not; "" where that is not known."""

    def stalled_s(self) -> float:
        """How long the step under way has been waited for."""


class Work(Protocol):
    """A request under way."""

    def cancel(self) -> None:
        """Ends it."""


class Waiting(Protocol):
    """Whoever waits for its answer."""

    is_closed: bool

    def is_cancelled(self) -> bool:
        """Whether nobody waits any more."""

    def has_credit(self) -> bool:
        """Whether it can be sent something without a wait."""

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Sends a response, from any thread; may wait."""


class EngineWatchdog:
    """Looks after one engine from `start` to `stop`."""

    def __init__(
        self,
        core: Steps,
        step_timeout_s: float,
        update_metrics: Callable[[], None],
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        self.active: dict[Work, Waiting] = {}
        """Requests under way; whoever submits them notes them here, and takes them away when they end."""
        self._core = core
        self._step_timeout_s = step_timeout_s
        self._update_metrics = update_metrics
        self._exit_process = exit_process
        self._timer = HangTimer(step_timeout_s)
        self._is_ending = threading.Event()
        self._has_told = False
        self._thread = threading.Thread(target=self._main, name="llm-watchdog", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Returns when it looks no more, so that the engine can be closed without being taken for a failed one."""
        self._is_ending.set()
        self._thread.join(_JOIN_S)
        self._timer.stop()

    def expect_work(self) -> None:
        """Called before a request is submitted: its first step may already be one that nobody can look at."""
        self._timer.arm()

    def _main(self) -> None:
        while not self._is_ending.wait(_LOOK_EVERY_S):
            for look in (self._end_abandoned, self._update_metrics, self._check_engine, self._wind_timer):
                self._attempt(look)

    def _attempt(self, look: Callable[[], None]) -> None:
        """What fails once may fail at every look: it is told once, and the others go on."""
        try:
            look()
        except Exception:
            if not self._has_told:
                log.exception("the engine cannot be looked after in full")
            self._has_told = True

    def _end_abandoned(self) -> None:
        for work, waiting in list(self.active.items()):
            if waiting.is_closed:
                self.active.pop(work, None)
            elif waiting.is_cancelled():
                work.cancel()

    def _wind_timer(self) -> None:
        """An idle process may be stopped and go on hours later: it is under no suspicion."""
        if self.active or self._core.stalled_s() > 0:
            self._timer.arm()
        else:
            self._timer.disarm()

    def _check_engine(self) -> None:
        if self._core.stalled_s() > self._step_timeout_s:
            reason = f"a step has not ended within {self._step_timeout_s:.0f} s"
            threading.Thread(target=self._tell_all, args=(reason,), name="llm-goodbyes", daemon=True).start()
            self._wait_for_goodbyes()
        elif not self._core.is_alive:
            self._wait_for_goodbyes()
            reason = self._core.ending or "the engine has ended"
        else:
            return
        if not self._is_ending.is_set():
            log.error("%s: the worker is started anew", reason)
            self._exit_process(_HUNG_EXIT_CODE)

    def _tell_all(self, reason: str) -> None:
        """Tells every request of a step that hangs; who is slow to take answers comes last."""
        error = TritonError(f"{reason} (step_timeout_s): the model is started anew; ask again", ErrorCode.UNAVAILABLE)
        for waiting in sorted(set(self.active.values()), key=lambda one: not one.has_credit()):
            try:
                if not waiting.is_closed:
                    waiting.send(InferenceResponse(error=error), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except Exception:  # the client has its answer already, or the server is gone
                log.debug("the end of a step that hangs reaches nobody", exc_info=True)

    def _wait_for_goodbyes(self) -> None:
        """Every request is told why the engine has ended: its clients should hear that, not that a worker is gone."""
        end = time.monotonic() + _GOODBYE_S
        while any(not waiting.is_closed for waiting in list(self.active.values())) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(_GATHERED_S)
