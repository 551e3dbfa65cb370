"""The event loop of a front-end process, from its fork to its end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import marshal
import os
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trireme.access import file_watch
from trireme.frontends.accepting import HTTP_SERVICE
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.handshakes import Handshakes
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.client_connection import ClientConnection, LeasedModels, RelayedCall
from trireme.frontends.processes.grpc_relay import GrpcClientConnection, GrpcRelay
from trireme.frontends.processes.http_relay import HttpClientConnection, HttpRelay
from trireme.frontends.processes.large_answers import AnswerParts
from trireme.frontends.processes.process_link import Message, ProcessLink
from trireme.frontends.shown_certificates import ShownCertificates
from trireme.server.server import InferenceServer

log = logging.getLogger(__name__)

_NAME: Final = b"trireme-front"
_PR_SET_NAME: Final = 15
_MOST_DESCRIPTORS: Final = 3
"""That come together."""
_STOP_POLL_S: Final = 0.02
_SWEEP_S: Final = 2.0
"""How often the server process is told which connections are used, and it is looked for clients that do not go on."""
_FOR_CALLS: Final = frozenset((messages.ANSWER, messages.REFUSE, messages.FAIL, messages.SEND_WHOLE))
_FOR_CLIENTS: Final = frozenset((messages.WRITE, messages.END_WRITING, messages.CLOSE, messages.ABORT))


class LeaseHolder(Protocol):
    """Takes workers that the server process leases, and runs plain requests on them."""

    models: LeasedModels

    def take(self, message: Message, descriptors: list[int]) -> None:
        """A worker comes (LEASE), with the descriptors of its sockets."""

    def give_back(self, lease: int) -> None:
        """The worker is to go back when it has done what it was given (RECALL)."""


@dataclass(frozen=True, slots=True)
class FrontPlan:
    """What all front-end processes of a server are told when they are forked."""

    http: HttpFrontendOptions
    grpc: GrpcFrontendOptions
    loop_factory: Callable[[], asyncio.AbstractEventLoop]
    """Makes the event loop."""
    open_log: Callable[[], None]
    """Opens the log for their few lines."""
    gc_thresholds: tuple[int, int, int]
    """How often garbage is collected."""
    inflight: InflightBytes
    """The server's limits; each process counts what it holds itself."""
    create_server: Callable[[], InferenceServer]
    """Makes a server without models, which front ends want to have."""
    reads_requests: bool = False
    """Whether they read plain inference requests themselves, and not only pass bytes on."""
    create_lease_holder: Callable[[InferenceServer, Callable[[Message], None]], LeaseHolder] | None = None
    """Makes who takes workers that the server process leases; None where it leases none."""


def serve_clients(plan: FrontPlan, sock: socket.socket, side: socket.socket) -> None:
    """The whole life of a front-end process, which ends with its link to the server process."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME, 0, 0, 0)
    with contextlib.suppress(OSError):
        plan.open_log()
    file_watch.log.disabled = True  # the server process follows the same files, and tells of them
    gc.set_threshold(*plan.gc_thresholds)
    with asyncio.Runner(loop_factory=plan.loop_factory) as runner:
        runner.run(_serve(plan, sock, side))
    os._exit(0)


async def _serve(plan: FrontPlan, sock: socket.socket, side: socket.socket) -> None:
    loop = FrontLoop(plan, sock, side)
    await loop.ended.wait()
    loop.close()


class FrontLoop:
    """Implements `RelayOwner`."""

    def __init__(self, plan: FrontPlan, sock: socket.socket, side: socket.socket) -> None:
        self.ended = asyncio.Event()
        self.connections: dict[int, ClientConnection] = {}
        self.is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._side = side
        self._descriptors: dict[int, list[int]] = {}  # that came before they were spoken of
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes = Handshakes()
        self._is_held = False
        self.link = ProcessLink(self._loop, sock, self._take, self.ended.set)
        self.link.on_drained = self._let_go
        self.link.on_unsent = self._on_unsent
        self._certificates = ShownCertificates((plan.http.tls, plan.grpc.tls), self._tell_shown)
        self._reads_requests = plan.reads_requests
        self._http = HttpRelay(plan.http, plan.inflight)
        self.calls: dict[int, RelayedCall] = {}
        self.used: set[int] = set()
        self._parts = AnswerParts()
        self._last_call = 0
        server = plan.create_server()
        self._lease_holder = (
            None if plan.create_lease_holder is None else plan.create_lease_holder(server, self.link.send)
        )
        self.leased: LeasedModels = {} if self._lease_holder is None else self._lease_holder.models
        self._grpc = GrpcRelay(self, plan.grpc, server, plan.inflight)
        self._loop.call_later(_SWEEP_S, self._look_around)

    def close(self) -> None:
        """Lets go of what is left."""
        self._certificates.stop()
        for task in self._tasks:
            task.cancel()

    def next_call(self) -> int:
        """A number that no open call has."""
        self._last_call += 1
        return self._last_call

    def check_link(self) -> None:
        """Reads from no client while the server process does not keep up."""
        if not self._is_held:
            self._is_held = True
            for connection in self.connections.values():
                connection.hold(True)

    def _let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            for connection in self.connections.values():
                connection.hold(False)

    def _take(self, message: Message) -> None:
        kind = message[0]
        if kind in _FOR_CALLS:
            self._settle(kind, message)
        elif kind in _FOR_CLIENTS:
            connection = self.connections.get(message[1])
            if connection is not None:
                connection.told(kind, message[2] if kind == messages.WRITE else b"")
        elif kind == messages.HANDED:
            connection = self.connections.get(message[1])
            if connection is not None:
                connection.handed(message[2])
        elif kind == messages.IDLE:
            connection = self.connections.get(message[1])
            if connection is not None:
                connection.idle(message[2])
        elif kind == messages.OPEN:
            self._open(message[1], message[2], message[3])
        elif kind == messages.PART:
            if message[1] in self.calls:
                self._parts.take(message)
        elif kind == messages.PING:
            self.link.send((messages.PONG,))
        elif kind == messages.STOPPING:
            self._refuse_calls()
        elif kind == messages.STOP:
            self._run(self._stop())
        elif self._lease_holder is not None and kind == messages.LEASE:
            self._lease_holder.take(message, self._descriptors_of(-message[1]))
        elif self._lease_holder is not None and kind == messages.RECALL:
            self._lease_holder.give_back(message[1])

    def _settle(self, kind: int, message: Message) -> None:
        """A call has ended; a large answer has come ahead in parts."""
        number = message[1]
        call = self.calls.pop(number, None)
        if call is None:
            return
        is_large = self._parts.has(number)
        call.settle(kind, self._parts.complete(message) if is_large else message)
        if is_large:
            self.link.send((messages.SETTLED, number))

    def drop_call(self, call: int) -> None:
        """Nobody waits for the call any more; nothing is done where it is settled."""
        if self.calls.pop(call, None) is not None:
            self._parts.drop(call)
            self.link.send((messages.CANCEL, call))

    def _on_unsent(self, message: Message) -> None:
        """A request that cannot be passed on as what it says is passed on as it came."""
        call = self.calls.pop(message[1], None) if message[0] == messages.INFER else None
        if call is not None:
            call.settle(messages.SEND_WHOLE, (messages.SEND_WHOLE, message[1]))

    def _open(self, number: int, service: int, may_read: bool) -> None:
        sock = self._socket_of(number)
        if sock is None:
            log.error("a client is lost: its socket could not be received; there may be too many open files")
            self.link.send((messages.LOST, number))
            return
        connection: ClientConnection
        if not may_read or not self._reads_requests:
            connection = ClientConnection(self, number)
        elif service == HTTP_SERVICE:
            connection = HttpClientConnection(self, number, self._http)
        else:
            connection = GrpcClientConnection(self, number, self._grpc)
        self.connections[number] = connection
        if self._is_held:
            connection.hold(True)
        self._run(self._connect_client(connection, sock, service))

    async def _connect_client(self, connection: ClientConnection, sock: socket.socket, service: int) -> None:
        """Makes the socket's transport, behind a TLS handshake where the service has one."""
        try:
            await self._handshakes.connect(connection, sock, self._certificates.context(service))
        except OSError:
            sock.close()
            connection.is_gone()

    def _tell_shown(self, services: list[int]) -> None:
        self.link.send((messages.SHOWN, services))

    def _socket_of(self, number: int) -> socket.socket | None:
        """The socket that the server process has sent ahead; None where the system has left it out."""
        descriptors = self._descriptors_of(number)
        return socket.socket(fileno=descriptors[0]) if descriptors else None

    def _descriptors_of(self, number: int) -> list[int]:
        """Those that the server process has sent ahead under this number; none where the system has left them out."""
        while number not in self._descriptors:
            told, descriptors, _, _ = socket.recv_fds(self._side, 64, _MOST_DESCRIPTORS)
            if not told:
                raise ConnectionResetError("the server process sends no sockets any more")
            self._descriptors[marshal.loads(told)[0]] = list(descriptors)
        return self._descriptors.pop(number)

    def _look_around(self) -> None:
        self._grpc.check_progress()
        self.used.update(call.connection_number for call in self.calls.values())
        if self.used:
            self.link.send((messages.USED, list(self.used)))
            self.used.clear()
        for connection in self.connections.values():
            connection.tell_unsent()
        self._loop.call_later(_SWEEP_S, self._look_around)

    def _refuse_calls(self) -> None:
        self.is_stopping = self._grpc.context.is_stopping = True

    async def _stop(self) -> None:
        """Ends with the last connection; how long that may take is up to the server process."""
        self._refuse_calls()
        while self.connections:  # noqa: ASYNC110 - they end one by one, and nobody else waits
            await asyncio.sleep(_STOP_POLL_S)
        self.link.flush()
        self.ended.set()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
