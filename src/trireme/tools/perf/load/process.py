"""The process that makes the load, and the handle by which the run commands it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import pickle
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.calls import Transport
from trireme.tools.perf.load.drivers import Driver
from trireme.tools.perf.load.event_loop import READ, EventLoop
from trireme.tools.perf.load.records import Recorder, Records
from trireme.tools.perf.load.schedules import LoadLevel

_LENGTH_BYTES: Final = 8
_DRAIN_S: Final = 5.0
_ANSWER_S: Final = 60.0

Build = Callable[[EventLoop, Recorder], tuple[Driver, Transport]]
"""Makes the parts of a load in the process that runs it."""


@dataclass(frozen=True, slots=True)
class LoadState:
    """How the load stands."""

    total: int
    """Requests answered so far."""
    outstanding: int
    cpu_s: float
    """Processor time that the load has cost."""
    error: str | None


class LoadProcess:
    """A load in a process of its own, so that nothing else of the run disturbs its times."""

    def __init__(self, build: Build, keeps_details: bool) -> None:
        self._control, other = socket.socketpair()
        self._control.settimeout(_ANSWER_S)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_run, args=(build, keeps_details, other, self._control), daemon=True)
        self._process.start()
        other.close()
        atexit.register(self.kill)  # Python itself would ask it to end, and wait

    def configure(self, level: LoadLevel) -> None:
        """From now on so much load."""
        self._ask("configure", level)

    def state(self) -> LoadState:
        state: LoadState = self._ask("state")
        return state

    def take(self) -> tuple[Records, LoadState]:
        """The requests that were answered since the last time."""
        rows, details, state = self._ask("take")
        return Records.from_bytes(rows, details), state

    def stop(self) -> None:
        """Ends the load; sequences get their ends."""
        with contextlib.suppress(PerfError):
            self._ask("stop")
        self._control.close()
        self._process.join(_DRAIN_S)
        self.kill()

    def kill(self) -> None:
        """Ends it with whatever is under way."""
        atexit.unregister(self.kill)
        self._control.close()
        self._process.kill()
        self._process.join()

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            _write(self._control, (name, arguments))
            return _read(self._control)
        except (OSError, EOFError) as error:
            raise PerfError(f"the process that makes the load has ended: {error}") from None


def _run(build: Build, keeps_details: bool, control: socket.socket, other: socket.socket) -> None:
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides what Ctrl+C means
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to a whole group, it would take the results away
    gc.disable()  # finished requests make no cycles, and a collection would be seen in their latencies
    loop = EventLoop()
    recorder = Recorder(keeps_details)
    driver, transport = build(loop, recorder)
    driver.transport = transport
    commands = _Commands(control, driver, recorder)
    loop.add(control.fileno(), READ, commands.ready)
    while not commands.is_over:
        loop.turn(commands.wait_s())
        driver.fire()
        transport.flush()
        commands.settle()
    transport.close()
    loop.close()


class _Commands:
    """Answers the run."""

    def __init__(self, control: socket.socket, driver: Driver, recorder: Recorder) -> None:
        self._control = control
        self._driver = driver
        self._recorder = recorder
        self._deadline: float | None = None
        self.is_over = False

    def wait_s(self) -> float | None:
        return self._driver.wait_s() if self._deadline is None else 0.01

    def ready(self, event: int) -> None:
        try:
            name, arguments = _read(self._control)
            self._run_command(name, arguments)
        except (OSError, EOFError):  # the run is gone
            self.is_over = True

    def settle(self) -> None:
        """Ends what was told to stop, once nothing is under way."""
        if self._deadline is None or self.is_over:
            return
        if self._driver.outstanding <= 0 or self._driver.error is not None or time.monotonic() > self._deadline:
            self.is_over = True
            with contextlib.suppress(OSError):
                _write(self._control, None)

    def _run_command(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "stop":
            self._driver.stop()
            self._deadline = time.monotonic() + _DRAIN_S
            return
        if name == "configure":
            self._driver.configure(*arguments)
            _write(self._control, None)
        elif name == "take":
            _write(self._control, (*self._recorder.take(), self._state()))
        else:
            _write(self._control, self._state())

    def _state(self) -> LoadState:
        driver = self._driver
        return LoadState(self._recorder.total, driver.outstanding, time.process_time(), driver.error)


def _write(control: socket.socket, message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    control.sendall(len(data).to_bytes(_LENGTH_BYTES, "big") + data)


def _read(control: socket.socket) -> Any:
    size = int.from_bytes(_read_exactly(control, _LENGTH_BYTES), "big")
    return pickle.loads(_read_exactly(control, size))


def _read_exactly(control: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = control.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("no answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
