"""A connection is kept from one request to the next, until it is old, broken or unwanted."""

from __future__ import annotations

import socketserver

import pytest
from meanwhile import serving

from trireme.tools.client.errors import UnreachableError
from trireme.tools.client.messages import InferCall
from trireme.tools.perf.address import Address
from trireme.tools.replay.kept_clients import KeptConnection, KeptGrpcClient


class Connection:
    """Notes what was done with it."""

    def __init__(self) -> None:
        self.is_connected = self.is_closed = self.is_leaving = False

    def connect(self) -> None:
        self.is_connected = True

    def close(self) -> None:
        self.is_closed = True


class Place:
    """Where connections are opened, with the clock in the test's hands."""

    def __init__(self) -> None:
        self.opened: list[Connection] = []
        self.now_s = 0.0
        self.is_down = False
        self.kept = KeptConnection(
            self.open, Connection.connect, lambda connection: not connection.is_leaving, lambda: self.now_s
        )

    def open(self) -> Connection:
        if self.is_down:
            raise ConnectionRefusedError
        self.opened.append(Connection())
        return self.opened[-1]

    def exchange(self) -> Connection:
        with self.kept.borrowed() as connection:
            return connection


@pytest.fixture
def place() -> Place:
    return Place()


def test_the_same_one_is_used_while_it_is_fresh(place: Place) -> None:
    first = place.exchange()
    place.now_s = 3.0
    assert place.exchange() is first
    place.now_s = 6.1
    assert place.exchange() is not first
    assert first.is_closed
    place.kept.close()
    assert place.opened[-1].is_closed


def test_an_error_ends_it(place: Place) -> None:
    def fail() -> None:
        with place.kept.borrowed():
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert place.opened[0].is_closed
    assert place.exchange() is place.opened[1]


@pytest.mark.parametrize("is_told_in_between", [True, False])
def test_one_that_the_server_leaves_is_not_used_again(place: Place, is_told_in_between: bool) -> None:
    with place.kept.borrowed() as connection:
        connection.is_leaving = not is_told_in_between
    connection.is_leaving = True
    assert place.exchange() is not connection
    assert connection.is_closed


def test_connecting_is_not_charged_to_a_request(place: Place) -> None:
    place.kept.warm_up()
    (first,) = place.opened
    assert first.is_connected
    assert place.exchange() is first
    place.kept.warm_up()
    assert place.opened == [first]
    place.now_s = 9.0
    place.kept.warm_up()
    assert (first.is_closed, len(place.opened)) == (True, 2)


def test_a_server_that_is_down_is_left_to_the_request(place: Place) -> None:
    place.is_down = True
    place.kept.warm_up()
    with pytest.raises(ConnectionRefusedError):
        place.exchange()
    place.kept.close()


def test_a_grpc_connection_that_the_server_has_closed_is_not_used_again() -> None:
    accepted = []

    class Closes(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            accepted.append(self.client_address)
            self.request.recv(1 << 16)

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Closes)) as server:
        client = KeptGrpcClient(Address("127.0.0.1", server.server_address[1]), (), None, 30.0)
        for count in (1, 2):
            with pytest.raises(UnreachableError):
                client.infer(InferCall("m", "", ()))
            assert len(accepted) == count
        client.kept.close()
