"""The loop of a front-end process, with this test in the server's place."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import raw_grpc
from front_loop_stage import FrontLoopStage, read_all, until
from running_server import int_request

from trireme.config.options.server import ServerOptions
from trireme.core.errors import InternalError
from trireme.frontends.accepting import GRPC_SERVICE, HTTP_SERVICE
from trireme.frontends.grpc.status import STOPPING
from trireme.frontends.processes import messages
from trireme.frontends.processes.infer_relay import encode_error

BODY = json.dumps(int_request(1, 2)).encode()
HTTP_REQUEST = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
BINARY_BODY = json.dumps({**int_request(1, 2), "parameters": {"binary_data_output": True}}).encode()
BINARY_REQUEST = (
    f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BINARY_BODY)}\r\n\r\n".encode()
    + BINARY_BODY
)
GRPC_REQUEST = (
    raw_grpc.PREFACE
    + raw_grpc.settings()
    + raw_grpc.headers(1, raw_grpc.INFER)
    + raw_grpc.data(1, raw_grpc.message(raw_grpc.infer_request("echo", "INT32", 1, b"abcd")))
)
GRPC_LIVE = (
    raw_grpc.PREFACE
    + raw_grpc.settings()
    + raw_grpc.headers(1, "/inference.GRPCInferenceService/ServerLive")
    + raw_grpc.data(1, raw_grpc.message(b""))
)


def answer_to(call: int) -> tuple[Any, ...]:
    return (messages.ANSWER, call, "1", [("OUT", "INT32", (1, 1), b"abcd")], {})


def test_no_more_is_read_of_a_client_than_the_server_process_looks_at() -> None:
    first, most = messages.FIRST_WINDOW_BYTES, messages.READ_WINDOW_BYTES + (1 << 18)
    large = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000)

    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(client, large))
        await until(lambda: read_bytes(stage) > first)
        await asyncio.sleep(0.02)
        assert read_bytes(stage) <= first + (1 << 18)
        handed = 0
        while handed < len(large):
            await asyncio.sleep(0.02)
            assert read_bytes(stage) - handed <= most
            step = min(200_000, read_bytes(stage) - handed)
            stage.link.send((messages.HANDED, 1, step))
            handed += step
        await sending
        await stage.close()

    asyncio.run(run())


def read_bytes(stage: FrontLoopStage) -> int:
    return sum(len(message[2]) for message in stage.taken if message[0] == messages.READ)


class Call:
    """Keeps how it ends."""

    connection_number = 1

    def __init__(self) -> None:
        self.ends: list[int] = []

    def settle(self, kind: int, message: tuple[Any, ...]) -> None:
        self.ends.append(kind)


def test_a_request_that_no_message_can_carry_goes_on_as_it_came() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        loop, strange, plain = stage.front, Call(), Call()
        loop.calls = {1: strange, 2: plain}
        loop.link.send((messages.INFER, 1, object()))
        loop.link.send((messages.INFER, 2))
        loop.link.flush()
        assert strange.ends == [messages.SEND_WHOLE]
        assert list(loop.calls.values()) == [plain]
        assert plain.ends == []
        await stage.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("service", "request_bytes", "answer"),
    [(HTTP_SERVICE, HTTP_REQUEST, b"HTTP/1.1 503"), (GRPC_SERVICE, GRPC_REQUEST, b"grpc-status\x0214")],
)
def test_a_request_that_comes_back_behind_the_end_is_answered(
    service: int, request_bytes: bytes, answer: bytes
) -> None:
    """The server process reads nothing more: without an answer the connection would stay open for ever."""

    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, service)
        client.send(request_bytes)
        call = (await stage.told(messages.INFER))[1]
        stage.link.send((messages.STOPPING,))
        stage.link.send((messages.CLOSE, 1))
        stage.link.send((messages.SEND_WHOLE, call))
        received = await read_all(client)
        assert answer in received
        assert b"Server is stopping" in received
        client.close()
        await until(lambda: stage.front.connections == {})
        await stage.close()

    asyncio.run(run())


def test_a_connection_that_alone_ends_is_closed_behind_a_request_that_comes_back() -> None:
    """So that its client asks again on another."""

    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        stage.link.send((messages.CLOSE, 1))
        stage.link.send((messages.SEND_WHOLE, call))
        assert await read_all(client) == b""
        assert stage.front.connections == {}
        await stage.close()

    asyncio.run(run())


def test_a_grpc_call_that_was_passed_on_is_answered_when_the_server_closes() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, GRPC_SERVICE)
        client.send(GRPC_LIVE)
        await stage.told(messages.READ)
        stage.link.send((messages.STOPPING,))
        stage.link.send((messages.CLOSE, 1))
        assert STOPPING.encode() in await read_all(client)
        await stage.close()

    asyncio.run(run())


def test_a_grpc_client_that_is_just_sending_is_not_reset_when_the_server_closes() -> None:
    """A reset would take the words about the end away from it."""

    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, GRPC_SERVICE)
        client.send(GRPC_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        stage.link.send((messages.STOPPING,))
        stage.link.send((messages.CLOSE, 1))
        stage.link.send((messages.FAIL, call, encode_error(InternalError("the end"))))
        await read_all(client)
        client.send(GRPC_LIVE)  # raises where nobody reads any more
        client.close()
        await until(lambda: stage.front.connections == {})
        await stage.close()

    asyncio.run(run())


def test_a_large_answer_is_put_together_and_counted_while_the_client_does_not_read() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(BINARY_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        data = bytes(range(256)) * (1 << 14)
        for start in range(0, len(data), 1 << 18):
            stage.link.send((messages.PART, call, 0, len(data), data[start : start + (1 << 18)]))
        stage.link.send((messages.ANSWER, call, "1", [("OUT", "UINT8", (1, len(data)), None)], {}))
        told = await stage.told(messages.UNSENT)
        assert len(data) // 2 < told[2] <= len(data) + 1000
        assert (await stage.told(messages.SETTLED))[1] == call
        received = b""
        while not received.endswith(data):
            received += await asyncio.get_running_loop().sock_recv(client, 1 << 20)
        assert await stage.told(messages.UNSENT) == (messages.UNSENT, 1, 0)
        await stage.close()

    asyncio.run(run())


def test_a_large_answer_is_counted_while_it_is_written_as_json() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        data = bytes(1 << 22)
        for start in range(0, len(data), 1 << 18):
            stage.link.send((messages.PART, call, 0, len(data), data[start : start + (1 << 18)]))
        stage.link.send((messages.ANSWER, call, "1", [("OUT", "FP32", (1 << 20,), None)], {}))
        told = await stage.told(messages.UNSENT)
        assert told[1] == 1
        assert told[2] >= 2 * len(data)  # the tensor, and four characters for each of its numbers
        assert (await stage.told(messages.SETTLED))[1] == call
        received = b""
        while not received.endswith(b"0.0,0.0]}]}"):
            received += await asyncio.get_running_loop().sock_recv(client, 1 << 20)
        while (await stage.told(messages.UNSENT))[2]:
            pass
        await stage.close()

    asyncio.run(run())


def test_answers_that_wait_for_a_grpc_client_are_counted() -> None:
    """Its window is 64 KiB and never opens again."""

    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, GRPC_SERVICE)
        client.send(GRPC_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        stage.link.send((messages.ANSWER, call, "1", [("OUT", "UINT8", (1, 1 << 20), bytes(1 << 20))], {}))
        told = await stage.told(messages.UNSENT)
        assert (1 << 20) - (1 << 16) <= told[2] < (1 << 20)
        client.send(raw_grpc.frame(raw_grpc.RST_STREAM, 0, 1, bytes(4)))
        assert await stage.told(messages.UNSENT) == (messages.UNSENT, 1, 0)
        await stage.close()

    asyncio.run(run())


def test_parts_of_an_answer_that_nobody_waits_for_are_not_kept() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        stage.link.send((messages.PART, call, 0, 100, bytes(10)))
        await until(lambda: stage.front._parts.has(call))
        client.close()
        await stage.told(messages.CANCEL)
        assert not stage.front._parts.has(call)
        stage.link.send((messages.PART, call, 0, 100, bytes(10)))
        stage.link.send((messages.PING,))
        await stage.told(messages.PONG)
        assert not stage.front._parts.has(call)
        await stage.close()

    asyncio.run(run())


def test_an_error_ends_an_answer_of_which_parts_have_come() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        call = (await stage.told(messages.INFER))[1]
        stage.link.send((messages.PART, call, 0, 100, bytes(10)))
        stage.link.send((messages.FAIL, call, encode_error(InternalError("it cannot pass"))))
        assert (await stage.told(messages.SETTLED))[1] == call
        received = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1 << 20), 5)
        assert received.startswith(b"HTTP/1.1 500 ")
        assert b"it cannot pass" in received
        assert not stage.front._parts.has(call)
        await stage.close()

    asyncio.run(run())


def test_requests_ahead_of_a_client_that_ends_its_half_are_answered() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        first = (await stage.told(messages.INFER))[1]
        client.send(HTTP_REQUEST)
        client.shutdown(socket.SHUT_WR)
        await until(lambda: stage.front.connections[1]._has_ended)  # type: ignore[attr-defined]
        stage.link.send(answer_to(first))
        await until(lambda: any(message[0] == messages.INFER for message in stage.taken))
        assert messages.ENDED not in [message[0] for message in stage.taken]
        second = (await stage.told(messages.INFER))[1]
        stage.link.send(answer_to(second))
        await stage.told(messages.ENDED)
        received = await asyncio.get_running_loop().sock_recv(client, 1 << 16)
        assert received.count(b"HTTP/1.1 200 OK") == 2
        await stage.close()

    asyncio.run(run())


def test_a_client_whose_socket_does_not_arrive_is_lost_alone() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        stage.send_without_socket(1, HTTP_SERVICE)
        assert (await stage.told(messages.LOST))[1] == 1
        client = stage.connect(2, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        assert (await stage.told(messages.INFER))[2] == 2
        await stage.close()

    asyncio.run(run())


def test_a_client_that_comes_while_the_link_is_full_is_held() -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        stage.front.check_link()
        client = stage.connect(1, HTTP_SERVICE)
        client.send(HTTP_REQUEST)
        await stage.told(messages.MADE)
        await asyncio.sleep(0.05)
        assert stage.taken == []
        stage.front._let_go()
        await stage.told(messages.INFER)
        await stage.close()

    asyncio.run(run())


@pytest.mark.parametrize("word", [messages.ABORT, messages.CLOSE])
def test_a_client_that_is_given_up_before_it_is_there_stays_away(word: int) -> None:
    async def run() -> None:
        stage = FrontLoopStage()
        client = stage.connect(1, HTTP_SERVICE)
        stage.link.send((word, 1))
        await stage.told(messages.LOST)
        assert await read_all(client) == b""
        assert stage.front.connections == {}
        assert stage.taken == []
        await stage.close()

    asyncio.run(run())


def test_the_process_ends_although_a_client_is_in_its_handshake(certificate: tuple[str, str]) -> None:
    async def run() -> None:
        names = {"http_server_cert": certificate[0], "http_server_key": certificate[1]}
        stage = FrontLoopStage(ServerOptions(http_use_ssl=True, **names))
        stage.connect(1, HTTP_SERVICE)
        await until(lambda: stage.front.connections)
        stage.link.send((messages.CLOSE, 1))
        stage.link.send((messages.STOP,))
        async with asyncio.timeout(5):
            await stage.front.ended.wait()
        await stage.close()

    asyncio.run(run())


def test_a_certificate_that_cannot_be_used_is_told_and_shown_when_it_can(certificate: tuple[str, str]) -> None:
    async def run() -> None:
        names = {"grpc_server_cert": certificate[0], "grpc_server_key": certificate[1]}
        whole = Path(certificate[0]).read_text()
        Path(certificate[0]).write_text(whole[:100])
        stage = FrontLoopStage(ServerOptions(grpc_use_ssl=True, **names))
        assert await stage.told(messages.SHOWN) == (messages.SHOWN, [])
        client = stage.connect(1, GRPC_SERVICE)
        await stage.told(messages.LOST)
        assert await read_all(client) == b""
        Path(certificate[0]).write_text(whole)
        assert await stage.told(messages.SHOWN) == (messages.SHOWN, [GRPC_SERVICE])
        stage.connect(2, GRPC_SERVICE)
        await until(lambda: stage.front.connections)
        await asyncio.sleep(0.05)
        assert stage.front.connections  # in its handshake
        await stage.close()

    asyncio.run(run())


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -keyout me.key -out me.pem"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    return str(tmp_path / "me.pem"), str(tmp_path / "me.key")
