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
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from trireme.core.errors import unanswered_error
from trireme.frontends.accepting import ProtocolFactory
from trireme.frontends.acceptor import ACCEPTS, Acceptor, LocalClients
from trireme.frontends.connection_slots import ConnectionSlots
from trireme.frontends.processes.front_process import FrontProcess
from trireme.frontends.processes.process_link import Message
from trireme.frontends.processes.starter import ENDED, FAILED, FORKED, MESSAGE_BYTES, Starter
from trireme.machine.process_state import is_stopped
from trireme.server.call import Calls

log = logging.getLogger(__name__)

_BUFFER_BYTES: Final = 1 << 20
_WATCH_S: Final = 0.5
"""How often each process is asked for a sign of life. Questions without an answer are counted, and not seconds: where
this process was held up as well, nobody is to blame."""
_SLOW_COUNT: Final = 2
"""With so many of them a process gets no further clients."""
_STOPPED_COUNT: Final = 4
"""With so many, a process that somebody has stopped is ended, and replaced."""
_HANGS_COUNT: Final = 10
"""With so many, any process is."""
_STARTER_HANGS_COUNT: Final = 40
"""A starter that has not forked what it was asked for when the processes were looked at so often is given up."""
_AGAIN_S: Final = 1.0
"""A process that ends sooner than this after its start is replaced after this time."""
_END_S: Final = 2.0
"""What front-end processes that were killed have for their end."""
_POLL_S: Final = 0.02
_RESTRICTED_ACCEPTS: Final = 2
"""How many clients beyond the limit are accepted in one turn of the loop."""


class FrontendProcesses:
    """Implements `Accepting`. Used on the event loop's thread."""

    def __init__(self, starter: Starter, count: int, calls: Calls, slots: ConnectionSlots) -> None:
        self._starter = starter
        self._control = starter.control
        self._calls = calls
        self._connection_slots = slots
        self._loop = asyncio.get_running_loop()
        self._slots: list[FrontProcess | None] = [None] * count
        self._started_s = [0.0] * count
        self._asked: dict[int, FrontProcess] = {}  # by the number of the request, until the starter has replied
        self._last_request = 0
        self._is_alone_told = False
        self._by_pid: dict[int, FrontProcess] = {}
        self._acceptors: list[Acceptor] = []
        self._is_stopping = False
        self._is_starter_gone = False
        self._cannot_fork = False  # so the starter has said last
        self._starter_silent_count = 0  # how often it was looked since it was asked, and has not replied
        self._watch_timer: asyncio.TimerHandle | None = None
        self.on_unfit: Callable[[int, str], None] | None = None
        """Told of a term of leases, and why the workers that it has are better off here."""
        self.on_new_records: Callable[[str, str, Any], None] | None = None
        """Told of slow and failed requests of a model and version that ran on leased workers."""
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
    ) -> Acceptor:
        """Accepts clients of the socket from now on. This process keeps those beyond the limit: they ask for health or
        go, and would lose their places to those behind them on the way through another process. It also keeps those
        that no other process can serve."""
        here = LocalClients(connect, context)

        def take(client: socket.socket, peer: Any) -> bool:
            is_bare = context is not None and self._is_bare(service)
            if is_bare or self.is_alone or self._connection_slots.is_full:
                return here.take(client, peer)
            return self._adopt(client, peer, service, connect, context is not None)

        acceptor = Acceptor(listening, take, self._most_at_once)
        self._acceptors.append(acceptor)
        return acceptor

    @property
    def is_alone(self) -> bool:
        """Whether there is no front-end process, and none can be started, at least for now: this process takes all
        clients that come."""
        return (self._is_starter_gone or self._cannot_fork) and not self.living

    @property
    def numbered(self) -> Sequence[FrontProcess | None]:
        """By number; None for one that is not there."""
        return self._slots

    @property
    def living(self) -> list[FrontProcess]:
        """Those that run."""
        return [process for process in self._slots if process is not None and process.pid is not None]

    def _most_at_once(self) -> int:
        """Of clients beyond the limit few: each is to be read before those behind it take its place."""
        if self._connection_slots.is_full:
            return _RESTRICTED_ACCEPTS
        has_taker = self.is_alone or any(process.unanswered_count < _SLOW_COUNT for process in self.living)
        return ACCEPTS if has_taker else 0

    def _adopt(
        self, client: socket.socket, peer: Any, service: int, connect: ProtocolFactory, needs_certificate: bool
    ) -> bool:
        """Hands a client to the process that has the fewest; false where there is none that keeps up and has what the
        service needs."""
        for process in sorted(self.living, key=lambda process: process.connection_count):
            if needs_certificate and service not in (process.shown_services or ()):
                continue
            if process.unanswered_count >= _SLOW_COUNT:
                continue
            if process.adopt(client, peer, service, connect):
                client.close()
                return True
        return False

    def _is_bare(self, service: int) -> bool:
        """Whether there are front-end processes, and all have told that they have no certificate for the service."""
        shown = [process.shown_services for process in self.living]
        return bool(shown) and all(services is not None and service not in services for services in shown)

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
        self._starter.go_on()  # it has to tell of the ends
        living = [process for process in self._slots if process is not None]
        for process in living:
            process.stop()
        await self._wait_for_ends(living, sending_s)
        for process in living:
            if not process.is_reaped:
                _kill(process)
                process.close()
        await self._wait_for_ends(living, _END_S)
        if not self._is_starter_gone:
            self._loop.remove_reader(self._control.fileno())
            self._starter.close()

    async def _wait_for_ends(self, processes: list[FrontProcess], longest_s: float) -> None:
        end_s = monotonic() + longest_s
        while any(map(self._is_there, processes)) and monotonic() < end_s:  # noqa: ASYNC110 - many ends
            await asyncio.sleep(_POLL_S)

    def _is_there(self, process: FrontProcess) -> bool:
        """Without the starter nobody tells of ends but the link."""
        return not (process.is_reaped or (self._is_starter_gone and process.is_over))

    @property
    def connection_counts(self) -> list[int | None]:
        """The clients of each process; None for one that is not there."""
        return [None if process is None or process.pid is None else process.connection_count for process in self._slots]

    # --- one process

    def _start_process(self, number: int) -> None:
        if self._is_stopping or self._is_starter_gone:
            return
        self._last_request += 1
        try:
            sock, side = self._ask_for_one()
        except OSError as error:
            log.error("front-end process %d cannot be started: %s", number, error)
            self._loop.call_later(_AGAIN_S, self._start_process, number)
            return
        self._started_s[number] = monotonic()
        told = self._on_end, self._tell_unfit, self._tell_new_records, self._go_on
        process = FrontProcess(self._loop, sock, side, self._calls, *told)
        self._slots[number] = self._asked[self._last_request] = process

    def _ask_for_one(self) -> tuple[socket.socket, socket.socket]:
        """Has a process forked; our ends of its two sockets. Raises OSError."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            link = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.enter_context(link[0])
            theirs.enter_context(link[1])
            side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(side[0])
            theirs.enter_context(side[1])
            for end in link:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            self._starter.ask(self._last_request, link[1], side[1])
            ours.pop_all()
        return link[0], side[0]

    def _on_end(self, process: FrontProcess) -> None:
        """Its link has ended: it is gone, or of no use any more. Of one that the starter has not told of yet, that is
        waited for, because it may never have been there."""
        if process in self._asked.values() and not self._is_starter_gone:
            return
        number = self._slots.index(process)
        self._slots[number] = None
        if self._is_stopping:
            return
        if process.pid is None and process.is_reaped:  # it could not be forked
            self._loop.call_later(_AGAIN_S, self._start_process, number)
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

    def _tell_unfit(self, term: int, reason: str) -> None:
        if self.on_unfit is not None:
            self.on_unfit(term, reason)

    def _tell_new_records(self, message: Message) -> None:
        if self.on_new_records is not None:
            self.on_new_records(*message[1:])

    def _check_alone(self) -> None:
        if self.is_alone and not self._is_stopping and not self._is_alone_told:
            self._is_alone_told = True
            log.error("there is no front-end process: the server process itself serves all clients that come")
            self._go_on()

    def _go_on(self) -> None:
        for acceptor in self._acceptors:
            acceptor.go_on()

    def _watch(self) -> None:
        """Looks for processes that hang."""
        for number, process in enumerate(self._slots):
            if process is None or process.pid is None:
                continue
            hangs = _how_it_hangs(process.pid, process.unanswered_count)
            if hangs:
                log.error("front-end process %d (pid %d) %s", number, process.pid, hangs)
                self.hang_count += 1
                process.close()
            else:
                process.ping()
        if self._asked:
            self._watch_starter()
        self._watch_timer = self._loop.call_later(_WATCH_S, self._watch)

    def _watch_starter(self) -> None:
        """It owes a process: where somebody has stopped it, it is to go on, and where it hangs in another way, it is
        ended, so that there is an end to the waiting of clients."""
        self._starter_silent_count += 1
        waited_s = self._starter_silent_count * _WATCH_S
        if self._starter_silent_count >= _STARTER_HANGS_COUNT:
            log.error("the process that forks front-end processes has not answered for %g s and is ended", waited_s)
            self._starter.kill()
        elif self._starter_silent_count % _STOPPED_COUNT == 0 and self._starter.is_stopped:
            log.error("the process that forks front-end processes is stopped, and has to go on (SIGCONT)")
            self._starter.go_on()

    def _on_starter(self) -> None:
        try:
            told = self._control.recv(MESSAGE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            told = b""
        if not told:
            self._loop.remove_reader(self._control.fileno())
            self._on_starter_gone()
            return
        self._starter_silent_count = 0
        kind, *facts = marshal.loads(told)
        if kind == FORKED:
            self._on_forked(*facts)
        elif kind == FAILED:
            self._on_fork_failed(*facts)
        elif kind == ENDED:
            pid, status = facts
            ended = self._by_pid.pop(pid, None)
            if ended is not None:
                ended.is_reaped = True
            if not self._is_stopping:
                log.error("front-end process with pid %d: %s", pid, _described(status))

    def _on_fork_failed(self, number: int, reason: str) -> None:
        """It is asked for again; what fails every second is told once."""
        if not self._cannot_fork:
            log.error("a front-end process could not be started, which is tried again every second: %s", reason)
        self._cannot_fork = True
        process = self._asked.pop(number)
        process.is_reaped = True
        self._let_end(process)
        self._check_alone()

    def _on_starter_gone(self) -> None:
        self._is_starter_gone = True
        self._starter.close()
        if self._is_stopping:
            return
        log.error("no front-end process can be started any more: the process that forks them has ended")
        for process in self._asked.values():
            self._let_end(process)  # whether it was forked is not known
        self._asked.clear()
        self._check_alone()

    def _let_end(self, process: FrontProcess) -> None:
        if process.is_over:
            self._on_end(process)
        else:
            process.close()

    def _on_forked(self, number: int, pid: int) -> None:
        if self._cannot_fork:
            log.info("front-end processes can be started again")
        self._cannot_fork = self._is_alone_told = False
        process = self._asked.pop(number)
        process.pid = pid
        self._by_pid[pid] = process
        if process.is_over:
            _kill(process)
            self._on_end(process)
        else:
            self._go_on()


def _how_it_hangs(pid: int, unanswered_count: int) -> str:
    """What is wrong with a process that leaves questions unanswered; empty where nothing is."""
    if unanswered_count >= _HANGS_COUNT:
        return f"has not answered for {_HANGS_COUNT * _WATCH_S:g} s"
    if unanswered_count >= _STOPPED_COUNT and is_stopped(pid):
        return f"is stopped, and has not answered for {_STOPPED_COUNT * _WATCH_S:g} s"
    return ""


def _kill(process: FrontProcess) -> None:
    if process.pid is not None and not process.is_reaped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _described(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"it was ended by signal {os.WTERMSIG(status)}"
    return f"it ended with exit code {os.waitstatus_to_exitcode(status)}"
