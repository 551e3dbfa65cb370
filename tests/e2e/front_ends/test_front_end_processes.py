"""Front-end processes under load: what dies and what goes on, what is counted, and how the server ends."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import tritonclient.grpc as triton
from process_server import ProcessServer
from running_server import exchange, int_request

GRPC_STOPPING = "GRPC server is shutting down and has stopped accepting new requests."
REQUEST = json.dumps(int_request(1, 2)).encode()
LOST_S = 120.0
"""A client that still has a connection after so long has a server that does not end."""


def test_a_process_that_dies_takes_its_connections_alone_and_is_replaced(served: ProcessServer) -> None:
    before = served.front_ends()
    assert len(before) == 2
    connections = [served.connect() for _ in range(4)]
    assert [exchange(each, "POST", "/v2/models/echo/infer", REQUEST)[0] for each in connections] == [200] * 4
    restarts = served.value("trireme_frontend_process_restarts_total")
    os.kill(before[0], signal.SIGKILL)
    served.until(lambda: served.value("trireme_frontend_process_restarts_total") == restarts + 1)
    statuses = [status_or_loss(each) for each in connections]
    assert sorted(statuses, key=str) == [200, 200, "lost", "lost"]
    served.until(lambda: served.value("trireme_frontend_processes") == 2)
    assert "ended by signal 9" in served.log
    assert [served.infer("echo", 5)[0] for _ in range(4)] == [200] * 4
    assert served.status("/v2/health/ready") == 200


def test_a_process_that_is_stopped_gets_no_clients_and_is_replaced_soon(served: ProcessServer) -> None:
    (stopped, *_) = served.front_ends()
    hangs = served.value("trireme_frontend_process_hangs_total")
    began = time.monotonic()
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(1.2)  # it is noticed by now, and not replaced
    assert [timed_status(served) for _ in range(6)] == [200] * 6
    assert served.value("trireme_frontend_process_hangs_total") == hangs
    served.until(lambda: served.value("trireme_frontend_process_hangs_total") == hangs + 1)
    assert time.monotonic() - began < 6
    assert "is stopped" in served.log
    served.until(lambda: served.value("trireme_frontend_processes") == 2)
    served.until(lambda: stopped not in served.front_ends())
    assert served.infer("echo", 5)[0] == 200


def test_statistics_are_exact_over_all_processes(served: ProcessServer) -> None:
    before = served.statistics("echo")["inference_count"]
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: ask_many(served, 50), range(8)))
    assert counts == [50] * 8
    with triton.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}") as client:
        for _ in range(50):
            client.infer("echo", [tensor(1, 2)])
    assert served.statistics("echo")["inference_count"] == before + 450
    assert served.value("nv_inference_request_success", model="echo", version="1") == before + 450


def test_no_request_fails_while_the_model_is_loaded_again(served: ProcessServer) -> None:
    code = served.log_path.parent / "model_repository" / "echo" / "1" / "model.py"
    unloaded = served.log.count("successfully unloaded 'echo'")
    is_over = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        askers = [pool.submit(ask_until, served, is_over) for _ in range(4)]
        for number in range(5):
            code.write_text(f"{code.read_text()}# {number}\n")
            assert served.ask("POST", "/v2/repository/models/echo/load")[0] == 200
        is_over.set()
        failures = [failure for asker in askers for failure in asker.result()]
    assert failures == []
    served.until(lambda: served.log.count("successfully unloaded 'echo'") - unloaded == 5)


def test_a_model_is_there_for_all_processes_once_its_load_is_answered(served: ProcessServer) -> None:
    connections = [served.connect() for _ in range(4)]
    for _ in range(5):
        assert served.ask("POST", "/v2/repository/models/failing/load")[0] == 200
        loaded = [exchange(each, "POST", "/v2/models/failing/infer", REQUEST)[2] for each in connections]
        assert all(b"it is Monday" in answer for answer in loaded)
        assert served.ask("POST", "/v2/repository/models/failing/unload")[0] == 200
        assert {exchange(each, "POST", "/v2/models/failing/infer", REQUEST)[0] for each in connections} <= {404, 503}


def test_a_setting_holds_for_all_processes(served: ProcessServer) -> None:
    settings = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "4"}
    connections = [served.connect() for _ in range(4)]
    assert served.ask("POST", "/v2/trace/setting", settings)[0] == 200
    for each in connections:
        assert exchange(each, "POST", "/v2/models/echo/infer", REQUEST)[0] == 200
    assert served.ask("POST", "/v2/trace/setting", {"trace_level": ["OFF"]})[0] == 200
    files = list(served.log_path.parent.glob("trace.json*"))
    assert sum(file.read_text().count("HTTP_SEND_START") for file in files) == 4


def test_a_request_in_pieces_is_answered(served: ProcessServer) -> None:
    head = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REQUEST)}\r\n\r\n".encode()
    whole = head + REQUEST
    for cuts in ((len(head),), (10, len(head) + 5), (len(head) - 2,)):
        with socket.create_connection(("127.0.0.1", served.ports["http"])) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start, end in zip((0, *cuts), (*cuts, len(whole)), strict=True):
                client.sendall(whole[start:end])
                time.sleep(0.02)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")


def test_long_and_short_requests_take_turns_on_a_connection(served: ProcessServer) -> None:
    """Long ones pass through the front end, short ones are read there; the client reads late."""
    long = json.dumps(int_request(*range(300_000))).encode()
    with socket.create_connection(("127.0.0.1", served.ports["http"])) as client:
        answers = client.makefile("rb")
        heads = [
            f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            for body in (long, REQUEST)
        ]
        sender = threading.Thread(target=client.sendall, args=((heads[0] + long + heads[1] + REQUEST) * 3,))
        sender.start()
        time.sleep(0.2)
        sizes = [len(json.loads(next_body(answers))["outputs"][0]["data"]) for _ in range(6)]
        sender.join()
    assert sizes == [300_000, 2] * 3


def test_calls_of_all_kinds_share_a_grpc_connection(served: ProcessServer) -> None:
    assert served.ask("POST", "/v2/repository/models/stream/load")[0] == 200
    answers: queue.Queue[tuple[triton.InferResult | None, Exception | None]] = queue.Queue()
    with triton.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for count in (2, 500_000, 3):
            assert client.is_server_live()
            assert client.infer("echo", [tensor(*range(count))]).as_numpy("OUT").shape == (1, count)
            client.async_stream_infer("stream", [tensor(*range(count))])
            told = [answers.get(timeout=30) for _ in range(3)]
            assert [error for _, error in told] == [None] * 3
            assert {result.as_numpy("OUT").shape for result, _ in told if result is not None} == {(1, count)}
        client.stop_stream()


def test_a_grpc_deadline_ends_a_call_that_is_at_work(served: ProcessServer) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}") as client:
        with pytest.raises(triton.InferenceServerException, match="Deadline Exceeded"):
            client.infer("slow", [tensor(1)], client_timeout=0.2)
        assert client.infer("echo", [tensor(1)]).as_numpy("OUT").tolist() == [[1]]


def test_a_client_that_leaves_cancels_its_request(served: ProcessServer) -> None:
    """One request runs, and the one behind it is taken out of the queue."""
    before = served.value("nv_inference_request_failure", model="slow", version="1", reason="CANCELED")
    body = (
        f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REQUEST)}\r\n\r\n".encode() + REQUEST
    )
    with (
        socket.create_connection(("127.0.0.1", served.ports["http"])) as first,
        socket.create_connection(("127.0.0.1", served.ports["http"])) as second,
    ):
        at_work = served.log.count("at work")
        first.sendall(body)
        served.until(lambda: served.log.count("at work") > at_work)
        second.sendall(body)
        served.until(lambda: served.value("nv_inference_pending_request_count", model="slow", version="1") == 1)
        second.close()
        served.until(
            lambda: served.value("nv_inference_request_failure", model="slow", version="1", reason="CANCELED") > before
        )
        assert first.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")


def test_the_server_ends_behind_the_answers_and_leaves_no_process(folder: Path) -> None:
    with ProcessServer(folder, 2, "--load-model=slow") as server:
        server.wait_until_ready()
        processes = server.front_ends()
        connection = server.connect()
        connection.request("POST", "/v2/models/slow/infer", REQUEST)
        server.until(lambda: "at work" in server.log)
        assert server.interrupt(signal.SIGTERM) == 0
        response = connection.getresponse()
        assert (response.status, b"OUT" in response.read()) == (200, True)
        assert [pid for pid in processes if Path(f"/proc/{pid}").exists()] == []


def test_the_server_ends_soon_under_load(folder: Path) -> None:
    with ProcessServer(folder, 2, "--load-model=echo") as server, ThreadPoolExecutor(8) as pool:
        server.wait_until_ready()
        is_over = threading.Event()
        askers = [pool.submit(ask_until_lost, server, is_over) for _ in range(8)]
        server.until(lambda: server.statistics("echo")["inference_count"] > 200)
        began = time.monotonic()
        code = server.interrupt(signal.SIGINT)
        took_s = time.monotonic() - began
        is_over.set()
        assert (code, took_s < 5) == (0, True)
        assert set().union(*(asker.result() for asker in askers)) <= {200, 503, "lost"}


def test_calls_that_come_when_the_server_ends_are_told_that_it_stops(folder: Path) -> None:
    """And not that they were not answered in time: none of them was begun."""
    flags = ("--load-model=echo", "--load-model=slow")
    with ProcessServer(folder, 2, *flags) as server, ThreadPoolExecutor(8) as pool:
        server.wait_until_ready()
        callers = [pool.submit(call_until_lost, server) for _ in range(8)]
        server.until(lambda: server.statistics("echo")["inference_count"] > 200)
        under_way = [server.connect() for _ in range(3)]  # one after the other: so long the server ends, at least
        for connection in under_way:
            connection.request("POST", "/v2/models/slow/infer", REQUEST)
        server.until(lambda: server.value("nv_inference_pending_request_count", model="slow", version="1") == 2)
        assert server.interrupt(signal.SIGTERM) == 0
        told = set[str]().union(*(caller.result() for caller in callers))
        assert [connection.getresponse().status for connection in under_way] == [200] * 3
    stopping = "[request id: <id_unknown>] Server is stopping, scheduler for model has stopped accepting new inference"
    told_of_the_end = {words for words in told if "erver is s" in words}
    assert f"{stopping} requests" in told_of_the_end
    assert told_of_the_end <= {f"{stopping} requests", GRPC_STOPPING}


def test_front_ends_end_with_a_server_that_is_killed(folder: Path) -> None:
    with ProcessServer(folder, 2, "--load-model=echo") as server:
        server.wait_until_ready()
        processes = server.front_ends()
        server.process.kill()
        server.process.wait()
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in processes):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def next_body(answers: BinaryIO) -> bytes:
    """The body of the next answer on a connection."""
    size = 0
    while line := answers.readline().strip():
        name, _, value = line.partition(b": ")
        size = int(value) if name == b"Content-Length" else size
    return answers.read(size)


def tensor(*values: int) -> triton.InferInput:
    given = triton.InferInput("IN", [1, len(values)], "INT32")
    given.set_data_from_numpy(np.array([values], np.int32))
    return given


def ask_many(served: ProcessServer, count: int) -> int:
    connection = served.connect()
    return sum(exchange(connection, "POST", "/v2/models/echo/infer", REQUEST)[0] == 200 for _ in range(count))


def timed_status(served: ProcessServer) -> int | str:
    """Of a request on a connection of its own, or how it failed."""
    connection = http.client.HTTPConnection("127.0.0.1", served.ports["http"], timeout=0.5)
    try:
        return exchange(connection, "POST", "/v2/models/echo/infer", REQUEST)[0]
    except OSError as error:
        return str(error)
    finally:
        connection.close()


def ask_until(served: ProcessServer, is_over: threading.Event) -> list[str]:
    connection, failures = served.connect(), []
    while not is_over.is_set():
        status, _, body = exchange(connection, "POST", "/v2/models/echo/infer", REQUEST)
        if status != 200:
            failures.append(f"{status} {body.decode()}")
    return failures


def call_until_lost(served: ProcessServer) -> set[str]:
    """What the calls of one client are told that are not answered, up to the end of its connection."""
    told = set[str]()
    deadline = time.monotonic() + LOST_S
    with triton.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}") as client:
        while not any("onnect" in words or "Stream removed" in words for words in told):
            assert time.monotonic() < deadline, told
            try:
                client.infer("echo", [tensor(1, 2)])
            except triton.InferenceServerException as error:
                told.add(str(error.message()))
    return told


def ask_until_lost(served: ProcessServer, is_over: threading.Event) -> set[int | str]:
    """Keeps its connection to the end, as clients with a pool do."""
    connection, statuses = served.connect(), set[int | str]()
    while "lost" not in statuses and not is_over.is_set():
        statuses.add(status_or_loss(connection))
    is_over.wait(30)
    return statuses


def status_or_loss(connection: http.client.HTTPConnection) -> int | str:
    try:
        return exchange(connection, "POST", "/v2/models/echo/infer", REQUEST)[0]
    except (ConnectionError, http.client.HTTPException):
        return "lost"
