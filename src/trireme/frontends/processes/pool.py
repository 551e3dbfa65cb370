"""The front-end processes of a server: started, given clients, watched, replaced when they die or hang, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import marshal
import os
import signal
import socket
import ssl
from time import monotonic
from typing import Any, Final

from trireme.core.errors import unanswered_error
from trireme.frontends.accepting import ProtocolFactory
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.processes.front_process import FrontProcess
from trireme.frontends.processes.starter import ENDED, FAILED, FORKED, Starter
from trireme.server.call import Calls

log = logging.getLogger(__name__)

_BUFFER_BYTES: Final = 1 << 20
_WATCH_S: Final = 1.0
_HANGS_S: Final = 10.0
"""A process that says nothing for so long is ended, and replaced."""
_AGAIN_S: Final = 1.0
"""A process that ends sooner than this after its start is replaced after this time."""
_END_S: Final = 2.0
"""What front-end processes that were killed have for their end."""
_POLL_S: Final = 0.02
_ACCEPTS: Final = 64
"""How many clients are accepted in one turn of the loop."""


class FrontendProcesses:
    """Implements `Accepting`. Used on the event loop's thread."""

    def __init__(self, starter: Starter, count: int, calls: Calls, inflight: InflightBytes) -> None:
        self._starter = starter
        self._control = starter.control
        self._calls = calls
        self._inflight = inflight
        self._loop = asyncio.get_running_loop()
        self._slots: list[FrontProcess | None] = [None] * count
        self._started_s = [0.0] * count
        self._asked: dict[int, FrontProcess] = {}  # by the number of the request, until the starter has replied
        self._last_request = 0
        self._is_alone_told = False
        self._by_pid: dict[int, FrontProcess] = {}
        self._accepting: set[_Accepting] = set()
        self._is_stopping = False
        self._is_starter_gone = False
        self._watch_timer: asyncio.TimerHandle | None = None
        self.restart_count = 0
        """How many processes were replaced."""
        self.hang_count = 0
        """How many of them had hung."""

    def start(self) -> None:
        """Starts the processes; clients wait in the system's queue until there is one."""
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._on_starter)
        for number in range(len(self._slots)):
            self._start_process(number)
        self._watch_timer = self._loop.call_later(_WATCH_S, self._watch)

    def accept(
        self, service: int, listening: socket.socket, connect: ProtocolFactory, context: ssl.SSLContext | None
    ) -> _Accepting:
        """Accepts clients of the socket from now on."""
        return _Accepting(self, service, listening, connect, context)

    @property
    def is_able(self) -> bool:
        """Whether there is a process that could hold a client's socket."""
        return self.is_alone or bool(self._living)

    @property
    def is_alone(self) -> bool:
        """Whether there is no front-end process any more, and none can be started: this process has all clients."""
        return self._is_starter_gone and all(process is None for process in self._slots)

    @property
    def _living(self) -> list[FrontProcess]:
        return [process for process in self._slots if process is not None and process.pid is not None]

    def adopt(self, client: socket.socket, peer: Any, service: int, connect: ProtocolFactory) -> bool:
        """Hands a client to the process that has the fewest; false where there is none that keeps up."""
        for process in sorted(self._living, key=lambda process: process.connection_count):
            if process.adopt(client, peer, service, connect):
                return True
        return False

    def answer_rest(self) -> None:
        """The server ends: requests that nobody has answered get an error."""
        for process in self._slots:
            if process is not None:
                process.answer_rest(unanswered_error())

    async def close(self, sending_s: float) -> None:
        """Waits so long for clients to read what they were sent, and ends the processes."""
        self._is_stopping = True
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        living = [process for process in self._slots if process is not None]
        for process in living:
            process.stop()
        await self._wait_for_ends(living, sending_s)
        for process in living:
            if not process.is_reaped:
                _kill(process)
                process.close()
        await self._wait_for_ends(living, _END_S)
        self._loop.remove_reader(self._control.fileno())
        self._starter.close()

    async def _wait_for_ends(self, processes: list[FrontProcess], longest_s: float) -> None:
        end_s = monotonic() + longest_s
        while any(map(self._is_there, processes)) and monotonic() < end_s:  # noqa: ASYNC110 - many ends
            await asyncio.sleep(_POLL_S)

    def _is_there(self, process: FrontProcess) -> bool:
        """Without the starter nobody tells of ends but the line."""
        return not (process.is_reaped or (self._is_starter_gone and process.is_over))

    @property
    def connection_counts(self) -> list[int | None]:
        """The clients of each process; None for one that is not there."""
        return [None if process is None else process.connection_count for process in self._slots]

    # --- one process

    def _start_process(self, number: int) -> None:
        if self._is_stopping or self._is_starter_gone:
            return
        sock, their_sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        side, their_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (sock, their_sock):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._last_request += 1
        try:
            self._starter.ask(self._last_request, their_sock, their_side)
        except OSError as error:
            log.error("front-end process %d cannot be started: %s", number, error)
            sock.close()
            side.close()
            self._loop.call_later(_AGAIN_S, self._start_process, number)
            return
        finally:
            their_sock.close()
            their_side.close()
        self._started_s[number] = monotonic()
        process = FrontProcess(self._loop, sock, side, self._calls, self._inflight, self._on_end)
        self._slots[number] = self._asked[self._last_request] = process

    def _on_end(self, process: FrontProcess) -> None:
        """Its line has ended: it is gone, or of no use any more."""
        number = self._slots.index(process)
        self._slots[number] = None
        if self._is_stopping:
            return
        _kill(process)
        what = "front-end process %d (pid %s) has ended, its connections with it; "
        if self._is_starter_gone:
            log.error(what + "it cannot be replaced", number, process.pid)
            self._check_alone()
            return
        self.restart_count += 1
        wait_s = 0.0 if monotonic() - self._started_s[number] > _AGAIN_S else _AGAIN_S
        log.error(what + "it is replaced", number, process.pid)
        self._loop.call_later(wait_s, self._start_process, number)

    def _check_alone(self) -> None:
        if self.is_alone and not self._is_stopping and not self._is_alone_told:
            self._is_alone_told = True
            log.error("there is no front-end process any more: the server process itself serves all clients")
            self._go_on()

    def _go_on(self) -> None:
        for accepting in list(self._accepting):
            accepting.go_on()

    def _watch(self) -> None:
        """Looks for processes that hang."""
        now_s = monotonic()
        for number, process in enumerate(self._slots):
            if process is None:
                continue
            if process.pid is not None and now_s - process.heard_s > _HANGS_S:
                log.error("front-end process %d (pid %d) has not answered for %g s", number, process.pid, _HANGS_S)
                self.hang_count += 1
                process.close()
            else:
                process.ping()
        self._watch_timer = self._loop.call_later(_WATCH_S, self._watch)

    def _on_starter(self) -> None:
        try:
            told = self._control.recv(256)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            told = b""
        if not told:
            self._loop.remove_reader(self._control.fileno())
            self._on_starter_gone()
            return
        kind, *facts = marshal.loads(told)
        if kind == FORKED:
            self._on_forked(*facts)
        elif kind == FAILED:
            number, reason = facts
            log.error("a front-end process could not be started: %s", reason)
            self._asked.pop(number).close()
        elif kind == ENDED:
            pid, status = facts
            ended = self._by_pid.pop(pid, None)
            if ended is not None:
                ended.is_reaped = True
            if not self._is_stopping:
                log.error("front-end process with pid %d: %s", pid, _described(status))

    def _on_starter_gone(self) -> None:
        self._is_starter_gone = True
        if self._is_stopping:
            return
        log.error("no front-end process can be started any more: the process that forks them has ended")
        for process in self._asked.values():
            process.close()  # whether it was forked is not known
        self._asked.clear()
        self._check_alone()

    def _on_forked(self, number: int, pid: int) -> None:
        process = self._asked.pop(number)
        process.pid = pid
        self._by_pid[pid] = process
        if process.is_over:
            _kill(process)
        else:
            self._go_on()


class _Accepting:
    """A listening socket of the server."""

    def __init__(
        self,
        processes: FrontendProcesses,
        service: int,
        listening: socket.socket,
        connect: ProtocolFactory,
        context: ssl.SSLContext | None,
    ) -> None:
        self.sockets = (listening,)
        self._processes = processes
        self._service = service
        self._connect = connect
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._held: tuple[socket.socket, Any] | None = None  # a client that nobody has taken yet, and its address
        self._tasks: set[asyncio.Task[None]] = set()
        processes._accepting.add(self)
        listening.setblocking(False)
        self.go_on()

    def go_on(self) -> None:
        """Accepts, now that there is somebody to hold the sockets."""
        if not self._is_closed:
            self._loop.add_reader(self.sockets[0].fileno(), self._on_client)
            if self._held is not None:
                self._loop.call_soon(self._on_client)

    def close(self) -> None:
        """Accepts no further client."""
        if not self._is_closed:
            self._is_closed = True
            self._processes._accepting.discard(self)
            self._loop.remove_reader(self.sockets[0].fileno())
            self.sockets[0].close()
            if self._held is not None:
                self._held[0].close()
                self._held = None

    def _on_client(self) -> None:
        for _ in range(_ACCEPTS):
            if self._is_closed:
                return
            if not self._processes.is_able:
                self._pause()
                return
            try:
                client, peer = self._held or self.sockets[0].accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("a client could not be accepted: %s", error)
                self._pause()
                return
            self._held = None
            if not self._hand_over(client, peer):
                self._held = client, peer
                self._pause()
                return

    def _hand_over(self, client: socket.socket, peer: Any) -> bool:
        if self._processes.is_alone:
            task = self._loop.create_task(self._serve_here(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return True
        if not self._processes.adopt(client, peer, self._service, self._connect):
            return False
        client.close()
        return True

    async def _serve_here(self, client: socket.socket) -> None:
        """Has the socket in this process, as a server without front-end processes does."""
        client.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._connect, client, ssl=self._context)
        except OSError:
            client.close()

    def _pause(self) -> None:
        """Leaves further clients in the system's queue until a process is there for them."""
        self._loop.remove_reader(self.sockets[0].fileno())
        self._loop.call_later(_AGAIN_S, self.go_on)


def _kill(process: FrontProcess) -> None:
    if process.pid is not None and not process.is_reaped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _described(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"it was ended by signal {os.WTERMSIG(status)}"
    return f"it ended with exit code {os.waitstatus_to_exitcode(status)}"
