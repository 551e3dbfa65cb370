"""Which requests a front-end process reads itself, and which it hands on whole."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.core.errors import stopping_error
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.http_relay import HttpClientConnection, HttpRelay

INPUT = {"name": "INPUT0", "shape": [2], "datatype": "INT32", "data": [1, 2]}


def is_read(document: dict[str, Any]) -> bool:
    relay, body = HttpRelay(HttpFrontendOptions(), InflightBytes()), json.dumps(document).encode()
    head, _ = relay.head_of(b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n")
    assert head is not None
    return relay.decode(head, body) is not None


@pytest.mark.parametrize(
    "members", [{}, {"id": "a"}, {"outputs": [{"name": "OUTPUT0"}]}, {"nobody": 1}, {"parameters": {"mine": 1}}]
)
def test_plain_documents_are_read_here(members: dict[str, Any]) -> None:
    assert is_read({"inputs": [INPUT]} | members)


@pytest.mark.parametrize("members", [{"output": [{"name": "OUTPUT0"}]}, {"paramters": {}}])
def test_documents_with_mistyped_members_go_to_the_server_process_which_tells_of_them(members: dict[str, Any]) -> None:
    assert not is_read({"inputs": [INPUT]} | members)


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.mark.parametrize("is_stopping", [True, False])
def test_a_request_that_nobody_began_on_a_connection_that_ends_is_told_that_the_server_stops_where_it_does(
    is_stopping: bool,
) -> None:
    async def run() -> None:
        sent: list[Any] = []
        link = SimpleNamespace(send=sent.append)
        owner: Any = SimpleNamespace(
            link=link, connections={}, used=set(), calls={}, leased={}, is_stopping=is_stopping, next_call=lambda: 3
        )
        http_relay = HttpRelay(HttpFrontendOptions(), InflightBytes())
        connection = HttpClientConnection(owner, 7, http_relay)
        transport = Transport()
        connection.connection_made(transport)
        body = json.dumps({"id": "4", "inputs": [INPUT]}).encode()
        head = b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.data_received(head + body)
        assert sent[-1][0] == messages.INFER
        connection.told(messages.CLOSE, b"")
        assert not transport.is_closed
        connection.settle(messages.SEND_WHOLE, (messages.SEND_WHOLE, 3))
        assert transport.is_closed
        if is_stopping:
            assert transport.written.startswith(b"HTTP/1.1 503 ")
            assert json.loads(transport.written.partition(b"\r\n\r\n")[2]) == {"error": stopping_error("4").message}
        else:
            assert transport.written == b""

    asyncio.run(run())


@pytest.mark.parametrize("place", [0, 1])
def test_the_connection_of_an_answer_that_breaks_off_ends_with_it(place: int) -> None:
    """Its client would wait for the rest, or take the answer to what was asked behind it for that."""

    async def run() -> None:
        owner: Any = SimpleNamespace(
            link=SimpleNamespace(send=lambda message: None),
            connections={},
            used=set(),
            calls={},
            leased={},
            is_stopping=False,
            next_call=lambda: 3,
        )
        connection = HttpClientConnection(owner, 7, HttpRelay(HttpFrontendOptions(), InflightBytes()))
        transport = Transport()
        connection.connection_made(transport)
        body = json.dumps({"inputs": [INPUT], "parameters": {"binary_data_output": True}}).encode()
        head = b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.data_received(head + body)
        connection.data_received(head + body)
        outputs: list[Any] = [(f"OUTPUT{number}", "UINT8", (100_000,), bytes(100_000)) for number in range(2)]
        outputs[place] = (*outputs[place][:3], memoryview(bytes(200_000))[::2])  # which no socket takes
        connection.settle(messages.ANSWER, (messages.ANSWER, 3, "1", outputs, None))
        assert transport.written.count(b"HTTP/1.1 ") == 1
        assert transport.is_closed

    asyncio.run(run())
