"""Hostile connections over HTTP: heads, chunks, floods, clients that leave or do not read; memory, files and time."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hostile_client import INFER, Target, copy_answer, copy_body, read_answer, running_target

MEMORY_BYTES = 512 << 20
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """At the end of all tests no file is left open, little memory is in use and nothing unforeseen was logged."""
    with running_target(tmp_path_factory.mktemp("connections")) as running:
        assert running.serves()
        files = running.file_count()
        yield running
        running.until(lambda: running.file_count() <= files)
        assert running.memory_bytes() < MEMORY_BYTES
        assert "Traceback" not in running.log
        assert running.interrupt() == 0


@pytest.fixture(autouse=True)
def survives(target: Target) -> Iterator[None]:
    yield
    assert target.serves()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;a\n\r\n{\r\n0\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
        (GET + b"Host: y\r\n\r\n", 400),
        (POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: +1\r\n\r\n", 400),
        (POST + b"Content-Length: 0x1\r\n\r\n", 400),
        (POST + b"Content-Length: 1 1\r\n\r\n", 400),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 400),
        (POST + b"Content-Length: 99999999999999\r\n\r\n", 413),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
        (GET + b"A: b\r\n folded\r\n\r\n", 400),
        (GET + b"A: b\0c\r\n\r\n", 400),
        (GET + b"A\0: b\r\n\r\n", 400),
        (GET + b": b\r\n\r\n", 400),
        (GET + b"A b: c\r\n\r\n", 400),
        (GET + b"A: b\n\r\n", 400),
        (GET + b"A: b\r\r\n\r\n", 400),
        (b"GET /v2\0 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /v2/health/live\r\n\r\n", 400),
        (b"GET /v2 HTTP/9.9\r\n\r\n", 400),
        (b"get /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\0" * 100, 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET /" + b"a" * 400_000, 431),
        (GET + b"A: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (GET + b"A: b\r\n" * 20_000 + b"\r\n", 431),
    ],
)
def test_a_head_that_can_be_misread_ends_the_connection(target: Target, raw: bytes, status: int) -> None:
    with target.open() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(raw + SMUGGLED)
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert received.count(b"HTTP/1.1 ") == 1
    assert b'"extensions"' not in received


def test_many_headers_and_a_long_path_are_read(target: Target) -> None:
    assert target.send(GET + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n")[0] == 200
    assert target.send(b"GET /v2/models/" + b"m" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 404


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        (b"1\r\n{\r\n" * 65_537, "request has more than 65536 chunks"),
        (b"ffffffffffffffff\r\n", "request body exceeds the maximum allowed size of 16777216 bytes"),
        (b"fffffffffffffffff\r\n", "chunk size is not a hexadecimal number"),
        (b"-1\r\n", "chunk size is not a hexadecimal number"),
        (b"0x1\r\n{\r\n", "chunk size is not a hexadecimal number"),
        (b"\r\n", "chunk size is not a hexadecimal number"),
        (b"2\r\n{}xx", "chunk is not followed by a line end"),
        (b"0\n\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"2\r\n{}\r\n0\n\n", "chunk header or trailer has a bare line feed or carriage return"),
        (b"1" * 5000, "chunk header is too long"),
        (b"1;" + b"x" * 5000, "chunk header is too long"),
        (b"0\r\n" + b"A: b\r\n" * 5000, "chunk trailer is too long"),
        (b"".join(b"100000\r\n%b\r\n" % bytes(1 << 20) for _ in range(17)), "exceeds the maximum allowed size"),
    ],
)
def test_chunks_that_are_wrong_end_the_connection(target: Target, chunks: bytes, text: str) -> None:
    with target.open() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        status, body = read_answer(connection)
        assert (status, text in json.loads(body)["error"]) == (400, True)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_a_body_in_65536_chunks_is_read(target: Target) -> None:
    body = copy_body(7) + b" " * 65_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    status, answer = target.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert (status, answer.decode()) == (200, copy_answer(7))


@pytest.mark.parametrize("sent", [0, 1, 60, 300_000])
def test_clients_that_leave_in_the_middle_of_a_body_leave_nothing(target: Target, sent: int) -> None:
    files = target.file_count()
    for framing in (b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nf4240\r\n"):
        for is_reset in (False, True):
            with target.open() as connection:
                connection.sendall(POST + framing + b" " * sent)
                if is_reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    target.until(lambda: target.file_count() <= files)


def test_a_thousand_pipelined_requests_are_answered_in_order(target: Target) -> None:
    with target.open() as connection:

        def send_all() -> None:
            for number in range(1000):
                body = copy_body(number)
                connection.sendall(POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

        sender = threading.Thread(target=send_all)
        sender.start()
        reader = connection.makefile("rb")
        for number in range(1000):
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            size = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            assert reader.read(size).decode() == copy_answer(number)
        sender.join()


def test_half_closed_clients_get_their_answer(target: Target) -> None:
    body = copy_body(5)
    raw = POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    assert target.send(raw, half_close=True) == (200, copy_answer(5).encode())
    assert target.send(raw[:-1], half_close=True) == (0, b"")


def test_a_body_that_is_only_announced_takes_no_memory(target: Target) -> None:
    before = target.memory_bytes()
    binary = POST + b"Inference-Header-Content-Length: 10\r\nContent-Length: 4294967296\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(target.open()).sendall(binary)
        assert target.health_seconds() < 1
        assert target.memory_bytes() < before + (64 << 20)


def binary_request(
    model: str, count: int, *, is_binary_answer: bool, datatype: str = "FP32", **output: object
) -> bytes:
    """Elements that are 1.0, or empty strings."""
    parameters = {"binary_data": is_binary_answer, **output}
    entry = {"name": "IN", "datatype": datatype, "shape": [count], "parameters": {"binary_data_size": 4 * count}}
    element = b"\0\0\x80?" if datatype == "FP32" else bytes(4)
    text = json.dumps({"inputs": [entry], "outputs": [{"name": "OUT", "parameters": parameters}]}).encode()
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(text)}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % (len(text) + 4 * count) + text + element * count


def test_a_client_that_never_reads_is_bounded(target: Target) -> None:
    before = target.memory_bytes()
    with target.open() as connection:
        connection.settimeout(2)
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(binary_request("floats", 1 << 20, is_binary_answer=True))
        assert target.memory_bytes() < before + (256 << 20)


def test_a_stream_that_nobody_reads_is_given_up(target: Target) -> None:
    before = target.memory_bytes()
    with target.open() as connection:
        body = b'{"IN":400}'
        path = b"POST /v2/models/flood/generate_stream HTTP/1.1\r\nHost: x\r\n"
        connection.sendall(path + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        connection.recv(1)
        target.until(lambda: '"flood"' in target.log or target.statistics("flood")["inference_count"] > 0)
        assert target.memory_bytes() < before + (256 << 20)


def test_streams_behind_a_stream_are_bounded(target: Target) -> None:
    before = target.memory_bytes()
    body = b'{"IN":300}'
    one = b"POST /v2/models/flood/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    with target.open() as connection:
        connection.sendall(one * 20)
        time.sleep(1)
        # Nobody reads, so what is kept without bound would stay; what was just on its way may take a moment to go.
        target.until(lambda: target.memory_bytes() < before + (320 << 20), timeout_s=10)


def test_five_hundred_idle_connections_disturb_nobody(target: Target) -> None:
    files = target.file_count()
    with contextlib.ExitStack() as stack:
        for number in range(500):
            connection = stack.enter_context(target.open())
            if number % 2:
                connection.sendall(POST[: number % 30])
        assert target.health_seconds() < 1
        assert target.serves()
    target.until(lambda: target.file_count() <= files)


def test_thousands_of_connections_come_and_go(target: Target) -> None:
    files, memory = target.file_count(), target.memory_bytes()
    for number in range(5000):
        with target.open() as connection:
            if number % 3:
                connection.sendall(GET[: number % 40])
    target.until(lambda: target.file_count() <= files)
    assert target.memory_bytes() < memory + (64 << 20)


def test_requests_of_http_1_0_and_absolute_targets_are_answered(target: Target) -> None:
    assert target.send(b"GET /v2/health/live HTTP/1.0\r\n\r\n")[0] == 200
    assert target.send(b"GET http://other.example/v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
    assert target.send(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")[0] in (400, 404)
    assert target.send(b"CONNECT other.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")[0] in (400, 404)
    assert target.send(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[0] in (0, 405)


def test_the_metrics_port_is_as_robust(target: Target) -> None:
    assert target.send(b"\0" * 100, port="metrics")[0] == 400
    assert (
        target.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", port="metrics")[0] == 431
    )
    assert target.send(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", port="metrics")[0] == 405
    assert target.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", port="metrics")[0] == 200


def json_input(model: str, datatype: str, count: int, data: bytes) -> bytes:
    text = b'{"inputs":[{"name":"IN","datatype":"%b","shape":[%d],"data":%b}]}' % (datatype.encode(), count, data)
    return f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def compressed() -> bytes:
    request = binary_request("floats", 1 << 20, is_binary_answer=True)
    return request.replace(b"\r\n", b"\r\nAccept-Encoding: gzip\r\n", 1)


MILLION = 1_000_000
HEAVY = {
    "numbers": lambda: json_input("copy", "INT32", 4 * MILLION, b"[" + b"1," * (4 * MILLION - 1) + b"1]"),
    "rows": lambda: json_input("copy", "INT32", 2 * MILLION, b"[" + b"[1,2]," * (MILLION - 1) + b"[3,4]]"),
    "mixed depth": lambda: json_input(
        "copy", "INT32", MILLION, b"[" + b"1," * (MILLION - 1) + b"[" * 98 + b"1" + b"]" * 98 + b"]"
    ),
    "strings": lambda: json_input("text", "BYTES", MILLION // 2, b"[" + b'"a",' * (MILLION // 2 - 1) + b'"a"]'),
    "no strings at all": lambda: binary_request("text", MILLION // 2, is_binary_answer=True, datatype="BYTES"),
    "not a number": lambda: json_input("floats", "FP32", MILLION, b"[NaN," + b"1," * (MILLION - 2) + b"1]"),
    "an error at the end": lambda: json_input("copy", "INT32", 1, b"[" + b"1," * (2 * MILLION) + b"x]"),
    "objects": lambda: json_input("copy", "INT32", 1, b"[" + b'{"a":1},' * (MILLION // 10) + b"1]"),
    "escapes": lambda: json_input("text", "BYTES", 1, b'["' + b"\\u00e9" * (MILLION // 2) + b'\\x"]'),
    "depth": lambda: json_input("copy", "INT32", 1, b"[" * (MILLION // 4)),
    "a large JSON answer": lambda: binary_request("floats", 2 * MILLION, is_binary_answer=False),
    "classes": lambda: binary_request("floats", MILLION, is_binary_answer=False, classification=MILLION),
    "compression": compressed,
    "a bomb": lambda: POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(BOMB), BOMB),
}
BOMB = gzip.compress(b'{"inputs":[' + b" " * (15 << 20) + b"]}")


@pytest.mark.parametrize("name", HEAVY)
def test_health_is_answered_while_a_heavy_request_is_served(target: Target, name: str) -> None:
    raw = HEAVY[name]()
    # A loop that is held up is held up every time; a machine that is busy elsewhere is not.
    assert any(longest_health_seconds(target, raw) < 1 for _ in range(3))


def longest_health_seconds(target: Target, raw: bytes) -> float:
    with target.open() as connection:
        connection.settimeout(60)
        connection.sendall(raw)
        answers: list[int] = []
        waiter = threading.Thread(target=lambda: answers.append(read_answer(connection)[0]))
        waiter.start()
        longest = 0.0
        while waiter.is_alive():
            longest = max(longest, target.health_seconds())
            waiter.join(0.02)
    assert answers[0] in (200, 400, 500)
    return longest


def test_the_same_path_serves_good_requests_all_along(target: Target) -> None:
    assert target.post(INFER, copy_body(*range(100))) == (200, copy_answer(*range(100)))
