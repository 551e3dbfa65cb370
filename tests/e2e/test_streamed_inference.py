"""Inference as a stream of events from a real server: each response as it comes, and an end when nobody reads."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import INT_CONFIG, RunningServer, int_request, write_model

DECOUPLED = INT_CONFIG + "model_transaction_policy { decoupled: true }\n"
HEADERS = {"Accept": "text/event-stream"}
COUNTING = """
import pathlib
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path(args["model_repository"])

    def execute(self, requests):
        for request in requests:
            self.count(request, request.get_response_sender())

    def count(self, request, sender):
        for number in range(int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0, 0])):
            if sender.is_cancelled():
                (self.folder / "cancelled").write_text(str(number))
                break
            if number == 3:
                error = pb_utils.InferenceResponse([], pb_utils.TritonError("three is not for me"))
                sender.send(error)
            else:
                out = pb_utils.Tensor("OUT", np.array([[number]], np.int32))
                sender.send(pb_utils.InferenceResponse([out]))
            # The first response has to be read by the client before there is a second.
            while not (self.folder / "seen").exists() and not sender.is_cancelled():
                time.sleep(0.001)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    write_model(folder, "counting", COUNTING, DECOUPLED)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder) as server:
        server.wait_until_listening()
        yield server


@pytest.fixture
def seen(folder: Path) -> Iterator[Path]:
    """The file that lets the model go on behind its first response."""
    path = folder / "model_repository" / "counting" / "seen"
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


def begin(served: RunningServer, count: int) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = served.connect()
    body = json.dumps(int_request(count, request_id="mine"))
    connection.request("POST", "/v2/models/counting/infer", body, HEADERS)
    return connection, connection.getresponse()


def read_event(response: http.client.HTTPResponse) -> dict[str, Any] | None:
    line = response.readline()
    if not line:
        return None
    assert line.startswith(b"data: ")
    assert response.readline() == b"\n"
    return dict(json.loads(line[6:]))


def test_events_come_one_by_one_and_the_last_one_says_so(served: RunningServer, seen: Path) -> None:
    connection, response = begin(served, 5)
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    first = read_event(response)
    seen.touch()  # only now does the model make the second
    events = [first, *iter(lambda: read_event(response), None)]
    connection.close()
    expected: list[Any] = [
        {"outputs": [{"name": "OUT", "datatype": "INT32", "shape": [1, 1], "data": [number]}]} for number in range(5)
    ]
    expected[3] = {"error": "three is not for me"}
    expected.append({"parameters": {"triton_final_response": True}, "outputs": []})
    for event in expected:
        if "error" not in event:
            event |= {"id": "mine", "model_name": "counting", "model_version": "1"}
    assert events == expected


def test_client_that_leaves_ends_the_work(served: RunningServer, seen: Path) -> None:
    connection, response = begin(served, 100)
    assert read_event(response) is not None
    connection.sock.close()  # the response object holds the socket as well
    response.close()
    connection.close()
    note = seen.with_name("cancelled")
    served.until(note.exists)
    assert note.read_text() == "1"


def test_decoupled_model_stays_refused_without_the_header(served: RunningServer) -> None:
    status, _, body = served.ask("POST", "/v2/models/counting/infer", int_request(1))
    assert status == 501
    assert b"decoupled transaction policy" in body
