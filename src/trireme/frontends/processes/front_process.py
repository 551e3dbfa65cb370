"""The server's side of one front-end process: the clients whose sockets it holds, and whether it is alive."""

from __future__ import annotations

import asyncio
import marshal
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from trireme.core.errors import ServingError
from trireme.frontends.accepting import HTTP_SERVICE, CountedConnection, ProtocolFactory
from trireme.frontends.http.connection import RestrictedConnection
from trireme.frontends.processes import messages
from trireme.frontends.processes.infer_relay import InferRelay
from trireme.frontends.processes.process_link import Message, ProcessLink
from trireme.frontends.processes.read_turns import ReadTurns
from trireme.frontends.processes.relayed_transport import RelayedTransport
from trireme.server.call import Calls

_FIRST_NUMBER: Final = 1


class FrontProcess:
    """One process, from before it has been forked to its end. `ended` is called once, when its link is."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        side: socket.socket,
        calls: Calls,
        ended: Callable[[FrontProcess], None],
        unfit: Callable[[int, str], None],
        new_records: Callable[[Message], None],
        shown: Callable[[], None],
    ) -> None:
        self.pid: int | None = None  # once the starter has told
        self.is_over = False
        self.is_reaped = False  # its number may be another process's by now
        self.unanswered_count = 0
        """How often it was asked for a sign of life since it gave one: other messages may come of a process that reads
        none."""
        self.shown_services: list[int] | None = None
        """Those for which it has a certificate; None where it has not told."""
        self._loop = loop
        self._side = side
        self._ended = ended
        self._unfit = unfit
        self._new_records = new_records
        self._shown = shown
        self._link = ProcessLink(loop, sock, self._take, self._lost)
        self._link.on_unsent = self._on_unsent
        self._transports: dict[int, RelayedTransport] = {}
        self._relay = InferRelay(calls, self._link, self._transports)
        self._link.on_drained = self._relay.go_on
        self._connections: dict[int, CountedConnection] = {}
        self._next_number = _FIRST_NUMBER
        self._turns = ReadTurns(loop)
        side.setblocking(False)

    @property
    def connection_count(self) -> int:
        return len(self._transports)

    @property
    def call_count(self) -> int:
        """Requests that it has read and that are not answered."""
        return self._relay.count

    def adopt(self, client: socket.socket, peer: Any, service: int, connect: ProtocolFactory) -> bool:
        """Hands the client's socket over; false, and nothing is done, where the process does not keep up."""
        number = self._next_number
        protocol = connect()
        connection = cast(CountedConnection, protocol)
        if not connection.claim(peer):
            protocol.connection_lost(None)
            return True
        try:
            socket.send_fds(self._side, [marshal.dumps((number, service))], [client.fileno()])
        except OSError:
            protocol.connection_lost(None)
            return False
        self._next_number = number + 1
        is_restricted = isinstance(protocol, RestrictedConnection) or getattr(protocol, "is_restricted", False)
        self._connections[number] = connection
        self._transports[number] = RelayedTransport(
            self._loop,
            self._link,
            number,
            protocol,
            peer,
            connection.inflight,
            self._turns,
            tells_idle=service == HTTP_SERVICE and not is_restricted,
        )
        self._link.send((messages.OPEN, number, service, not is_restricted))
        return True

    def take_demand(self, model_name: str) -> int:
        """Requests for the model that it has read and passed on since the last time."""
        return self._relay.demands.pop(model_name, 0)

    def lend(self, lease: int, facts: Message, descriptors: list[int]) -> None:
        """Hands a worker over, with its sockets among the descriptors; raises OSError where the process does not keep
        up."""
        socket.send_fds(self._side, [marshal.dumps((-lease,))], descriptors)
        self._link.send((messages.LEASE, lease, *facts))

    def recall(self, lease: int) -> None:
        """Asks for the worker; one that has ended has given it back."""
        if not self.is_over:
            self._link.send((messages.RECALL, lease))

    def ping(self) -> None:
        """Asks for a sign of life."""
        self.unanswered_count += 1
        self._link.send((messages.PING,))

    def answer_rest(self, error: ServingError) -> None:
        """The server ends: what it has read and nobody has answered gets this error, and what it reads from now on is
        refused there."""
        self._link.send((messages.STOPPING,))
        self._relay.answer_rest(error)

    def stop(self) -> None:
        """Lets it end when its clients have taken what they were sent, those too that no listener knows yet."""
        for transport in self._transports.values():
            transport.close()
        self._link.send((messages.STOP,))
        self._link.flush()

    def close(self) -> None:
        """Ends the link, and with it the process."""
        self._link.close()
        self._lost()

    def _lost(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._side.close()
        self._relay.close()
        transports = list(self._transports.values())
        self._transports.clear()
        self._connections.clear()
        for transport in transports:
            transport.lost(ConnectionResetError("the front-end process that held the socket has ended"))
        self._ended(self)

    def _take(self, message: Message) -> None:
        kind = message[0]
        if kind == messages.INFER:
            self._relay.begin(message)
        elif kind == messages.READ:
            transport = self._transports.get(message[1])
            if transport is not None:
                transport.received(message[2])
        elif kind == messages.CANCEL:
            self._relay.cancel(message[1])
        elif kind == messages.USED:
            self._note_used(message[1])
        elif kind == messages.SETTLED:
            self._relay.settled(message[1])
        elif kind == messages.PONG:
            self.unanswered_count = 0
        elif kind == messages.UNFIT:
            self._unfit(message[1], message[2])
        elif kind == messages.NEW_RECORDS:
            self._new_records(message)
        elif kind == messages.SHOWN:
            self.shown_services = message[1]
            self._shown()
        else:
            self._take_rare(kind, message)

    def _on_unsent(self, message: Message) -> None:
        if message[0] in (messages.ANSWER, messages.PART):
            self._relay.fail_unsent(message[1])

    def _take_rare(self, kind: int, message: Message) -> None:
        number = message[1]
        transport = self._transports.get(number)
        if transport is None:
            return
        if kind == messages.MADE:
            transport.made()
        elif kind == messages.ENDED:
            transport.received(b"")
        elif kind == messages.TAKEN:
            transport.taken(message[2])
        elif kind == messages.UNSENT:
            transport.unsent(message[2])
        elif kind == messages.LOST:
            del self._transports[number], self._connections[number]
            transport.lost()

    def _note_used(self, numbers: list[int]) -> None:
        for number in numbers:
            connection = self._connections.get(number)
            if connection is not None:
                connection.note_used()
