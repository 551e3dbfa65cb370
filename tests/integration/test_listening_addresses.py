"""Where services listen: on every address of a name, all on one port, and not where others do."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from free_ports import free_ports

from trireme.app.listening import port_problem
from trireme.config.options.server import ServerOptions
from trireme.core.errors import UnavailableError
from trireme.frontends import listening as listening_module
from trireme.frontends.accepting import GRPC_SERVICE
from trireme.frontends.acceptor import Acceptor
from trireme.frontends.listening import ListeningPlace, bind_sockets, listen

HOSTS = {
    "both": ["127.0.0.1", "127.0.0.2", "127.0.0.1"],
    "elsewhere": ["192.0.2.1", "127.0.0.1"],
    "gone": ["192.0.2.1"],
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def known(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        if host not in HOSTS:
            return list(look_up(host, port, *args, **options))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in HOSTS[host]]

    monkeypatch.setattr(socket, "getaddrinfo", known)


def addresses_of(sockets: list[socket.socket]) -> list[str]:
    found = [listening.getsockname()[0] for listening in sockets]
    for listening in sockets:
        listening.close()
    return found


@pytest.mark.parametrize("is_tls", [False, True])
def test_clients_are_accepted_on_every_address_of_a_name(is_tls: bool) -> None:
    async def scenario() -> None:
        made: asyncio.Queue[asyncio.Protocol] = asyncio.Queue()

        class Counted(asyncio.Protocol):
            def __init__(self) -> None:
                made.put_nowait(self)

            def claim(self, peer: object) -> bool:
                return True

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if is_tls else None
        listening = await listen(GRPC_SERVICE, ListeningPlace("both", 0, False), Counted, context, None)
        assert len(listening.sockets) == 2
        for address in ("127.0.0.1", "127.0.0.2"):
            _, writer = await asyncio.open_connection(address, listening.port)
            writer.close()
            await asyncio.wait_for(made.get(), 10)
        port = listening.port
        listening.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.2", port)

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["server", "acceptor", "processes"])
def test_no_address_stays_open_where_accepting_on_a_later_one_fails(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted: list[socket.socket] = []

    def fail_later(listening: socket.socket) -> None:
        accepted.append(listening)
        if len(accepted) > 1:
            raise OSError(errno.EMFILE, "Too many open files")

    def accept_once(listening: socket.socket, *_: Any) -> Acceptor:
        fail_later(listening)
        return Acceptor(listening, lambda client, peer: True)

    async def scenario() -> None:
        create_server = asyncio.get_running_loop().create_server

        async def serve_once(connect: Any, *, sock: socket.socket, backlog: int) -> asyncio.Server:
            fail_later(sock)
            return await create_server(connect, sock=sock, backlog=backlog)

        monkeypatch.setattr(asyncio.get_running_loop(), "create_server", serve_once, raising=False)
        monkeypatch.setattr(listening_module, "Acceptor", accept_once)
        processes = cast(Any, SimpleNamespace(accept=lambda service, listening, *_: accept_once(listening)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if way == "acceptor" else None
        place = ListeningPlace("both", 0, False)
        with pytest.raises(OSError, match="Too many open files"):
            await listen(GRPC_SERVICE, place, asyncio.Protocol, context, processes if way == "processes" else None)
        await asyncio.sleep(0)
        assert [listening.fileno() for listening in accepted] == [-1, -1]

    asyncio.run(scenario())


def test_addresses_that_the_machine_does_not_have_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert addresses_of(bind_sockets(ListeningPlace("elsewhere", 0, False))) == ["127.0.0.1"]
    assert "'elsewhere' is 192.0.2.1, which this machine does not have: not served there" in caplog.messages
    with pytest.raises(UnavailableError, match=r"^Socket 'gone:0' can not be opened: "):
        bind_sockets(ListeningPlace("gone", 0, False))


def test_port_that_is_taken_on_one_address_is_taken() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UnavailableError) as caught:
            bind_sockets(ListeningPlace("both", port, False))
    assert caught.value.message == f"Socket 'both:{port}' already in use "
    assert addresses_of(bind_sockets(ListeningPlace("both", port, False))) == ["127.0.0.1", "127.0.0.2"]


def test_ports_are_asked_about_before_the_start_on_every_address_that_the_server_listens_on() -> None:
    ports = free_ports(3)
    options = ServerOptions(
        http_address="both", grpc_address="elsewhere", http_port=ports[0], grpc_port=ports[1], metrics_port=ports[2]
    )
    assert port_problem(options) is None
    with socket.create_server(("127.0.0.2", ports[0])):
        told = port_problem(options)
        assert told is not None
        assert told.startswith(f"both:{ports[0]} (--http-port) is taken: ")
    gone = port_problem(replace(options, grpc_address="gone"))
    assert gone == f"the server cannot listen on gone:{ports[1]} (--grpc-port): {os.strerror(errno.EADDRNOTAVAIL)}"


def test_chosen_port_that_is_taken_elsewhere_is_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []
    bind = socket.socket.bind

    def refuse_twice(listening: socket.socket, where: Any) -> None:
        if where[1] and len(refused) < 2:
            refused.append(where[1])
            raise OSError(errno.EADDRINUSE, "taken")
        bind(listening, where)

    class Socket(socket.socket):
        bind = refuse_twice

    monkeypatch.setattr(socket, "socket", Socket)
    assert addresses_of(bind_sockets(ListeningPlace("both", 0, False))) == ["127.0.0.1", "127.0.0.2"]
    assert len(refused) == 2


def test_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnavailableError, match=r"^Socket 'no\.such\.host\.invalid:1' can not be opened: "):
        bind_sockets(ListeningPlace("no.such.host.invalid", 1, False))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_all_ipv6_addresses_are_all_ipv4_addresses_too() -> None:
    [listening] = bind_sockets(ListeningPlace("::", 0, False))
    with listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=5):
        pass
