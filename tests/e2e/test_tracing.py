"""Traces of a real server: in a file, in a response header, and behind the last response of a stream."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from running_server import INT_CONFIG, RunningServer, int_request, write_model
from traced_models import STEP, infer, write_traced_models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_traced_models(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Without a flag of tracing: explanations are there for whoever asks."""
    folder = tmp_path_factory.mktemp("explained")
    write_traced_models(folder)
    with RunningServer(folder) as server:
        server.wait_until_listening()
        yield server


def test_every_second_request_reaches_the_file_with_its_steps(folder: Path) -> None:
    flags = ["level=TIMESTAMPS", "rate=2", "triton,file=trace.json"]
    with RunningServer(folder, *(f"--trace-config={flag}" for flag in flags)) as server:
        server.wait_until_listening()
        for _ in range(4):
            assert infer(server, "pipeline").status == 200
        server.process.terminate()
        assert server.process.wait(30) == 0
    records = json.loads((folder / "trace.json").read_text())
    subjects = [record for record in records if "model_name" in record]
    assert [record["model_name"] for record in subjects] == ["step", "step", "step", "pipeline"] * 2
    whole = subjects[3]["id"]
    assert [record.get("parent_id") for record in subjects[:4]] == [whole] * 3 + [None]
    marks = {
        mark["name"]: mark["ns"] for record in records if record["id"] == whole for mark in record.get("timestamps", ())
    }
    names = ["HTTP_RECV_START", "REQUEST_START", "QUEUE_START", "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END"]
    assert [marks[name] for name in names] == sorted(marks[name] for name in names)


def test_settings_of_a_running_server_turn_tracing_on_and_off(folder: Path) -> None:
    with RunningServer(folder, "--trace-config=triton,file=trace.json", "--trace-config=rate=1") as server:
        server.wait_until_listening()
        infer(server, "step")
        assert server.ask("POST", "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_count": "1"})[0] == 200
        for _ in range(3):
            infer(server, "step")
        assert json.loads(server.ask("GET", "/v2/trace/setting")[2])["trace_count"] == "0"
        server.process.terminate()
        assert server.process.wait(30) == 0
    assert len([record for record in json.loads((folder / "trace.json.0").read_text()) if "model_name" in record]) == 1


def test_an_explained_request_adds_up_to_its_time(server: RunningServer) -> None:
    infer(server, "pipeline")
    begin = time.monotonic()
    response = infer(server, "pipeline", {"X-Explain": "1"})
    seen_us = (time.monotonic() - begin) * 1e6
    assert infer(server, "pipeline").getheader("X-Explain") is None
    table = json.loads(response.getheader("X-Explain") or "")
    assert table["model"] == "pipeline"
    assert [step["model"] for step in table["steps"]] == ["step"] * 3
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)
    assert 60_000 < table["duration_us"] <= seen_us
    for step in table["steps"]:
        assert {"queue", "input", "model", "output"} <= {phase["name"] for phase in step["phases"]}
        assert sum(phase["duration_us"] for phase in step["phases"]) == pytest.approx(step["duration_us"], rel=0.05)


def test_failures_and_answers_out_of_the_cache_are_explained_too(folder: Path) -> None:
    write_model(
        folder, "failing", "class TritonPythonModel:\n    def execute(self, requests):\n        raise OSError\n"
    )
    write_model(folder, "kept", STEP, INT_CONFIG + "response_cache { enable: true }\n")
    with RunningServer(folder, "--cache-config=local,size=1048576") as server:
        server.wait_until_listening()
        failed = infer(server, "failing", {"X-Explain": "1"})
        ran, found = (infer(server, "kept", {"X-Explain": "1"}) for _ in range(2))
    assert failed.status == 500
    names = []
    for response in (failed, ran, found):
        table = json.loads(response.getheader("X-Explain") or "")
        names.append([phase["name"] for phase in table["phases"]])
        assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)
    assert "model" in names[0]
    assert "model" in names[1]
    assert names[2] == ["receive", "parse", "cache", "serialise"]


def test_time_of_a_request_whose_worker_died_is_the_model_s(folder: Path) -> None:
    dying = "import os\nimport time\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
    write_model(folder, "dying", dying + "        time.sleep(0.2)\n        os._exit(3)\n")
    with RunningServer(folder) as server:
        server.wait_until_listening()
        response = infer(server, "dying", {"X-Explain": "1"})
    assert response.status == 500
    table = json.loads(response.getheader("X-Explain") or "")
    times = {phase["name"]: phase["duration_us"] for phase in table["phases"]}
    assert times["model"] >= 200_000
    assert times["output"] < times["model"]


def test_an_explained_grpc_call_has_the_explanation_in_its_parameters(server: RunningServer) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
        given.set_data_from_numpy(np.array([[1]], np.int32))
        explained = client.infer("pipeline", [given], headers={"x-explain": "1"}).get_response().parameters
        plain = client.infer("pipeline", [given]).get_response().parameters
    assert "x-explain" not in plain
    assert explained.keys() - plain.keys() == {"x-explain"}
    table = json.loads(explained["x-explain"].string_param)
    assert [step["model"] for step in table["steps"]] == ["step"] * 3
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)


def events_of(server: RunningServer, path: str, body: object, headers: dict[str, str]) -> list[tuple[str, Any]]:
    """Name and data of each event of a stream."""
    connection = server.connect()
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        assert (response.status, response.getheader("X-Explain")) == (200, None)
        blocks = [block.split("\n") for block in response.read().decode().strip().split("\n\n")]
    finally:
        connection.close()
    fields = [dict(line.split(": ", 1) for line in block) for block in blocks]
    return [(entry.get("event", ""), json.loads(entry["data"])) for entry in fields]


@pytest.mark.parametrize(("model", "count"), [("step", 1), ("many", 3)])
@pytest.mark.parametrize("is_generate", [True, False], ids=["generate", "infer"])
def test_an_explained_stream_ends_with_the_explanation(
    server: RunningServer, model: str, count: int, is_generate: bool
) -> None:
    path = f"/v2/models/{model}/{'generate_stream' if is_generate else 'infer'}"
    body = {"IN": [1]} if is_generate else int_request(1)
    events_wanted = {"Accept": "text/event-stream"}
    plain = events_of(server, path, body, events_wanted)
    explained = events_of(server, path, body, {**events_wanted, "X-Explain": "1"})
    assert [name for name, _ in explained] == [""] * len(plain) + ["explain"]
    assert [data for _, data in explained[:-1]] == [data for _, data in plain]
    table = explained[-1][1]
    assert (table["model"], table["batch_size"]) == (model, 1)
    phases = [phase["name"] for phase in table["phases"]]
    middle = ["first_response", "stream"] if count > 1 else ["input", "model", "output", "respond"]
    assert phases == ["receive", "parse", "queue", *middle, "serialise"]
    assert sum(phase["duration_us"] for phase in table["phases"]) == pytest.approx(table["duration_us"], rel=0.05)


def stream_answers(client: Any, headers: dict[str, str], wants_empty_final: bool, count: int) -> list[Any]:
    """What one stream answers to a request to `many` and one to `pipeline`."""
    answers: queue.Queue[Any] = queue.Queue()
    given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
    given.set_data_from_numpy(np.array([[1]], np.int32))
    client.start_stream(lambda result, error: answers.put(error or result), headers=headers)
    for model in ("many", "pipeline"):
        client.async_stream_infer(model, [given], request_id=model, enable_empty_final_response=wants_empty_final)
    found = [answers.get(timeout=20).get_response() for _ in range(count)]
    client.stop_stream()
    assert answers.empty()
    return found


def test_an_explained_grpc_stream_has_an_explanation_for_each_request(server: RunningServer) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        plain = stream_answers(client, {}, False, 4)
        explained = [stream_answers(client, {"x-explain": "1"}, wants, 5) for wants in (True, False)]
    assert not any("x-explain" in response.parameters for response in plain)
    for found in explained:
        tables = {}
        for model, count in (("many", 4), ("pipeline", 1)):
            responses = [response for response in found if response.id == model]
            assert ["x-explain" in response.parameters for response in responses] == [False] * (count - 1) + [True]
            assert responses[-1].parameters["triton_final_response"].bool_param
            table = tables[model] = json.loads(responses[-1].parameters["x-explain"].string_param)
            total_us = sum(phase["duration_us"] for phase in table["phases"])
            assert total_us == pytest.approx(table["duration_us"], rel=0.05)
        phases = [phase["name"] for phase in tables["many"]["phases"]]
        assert phases == ["receive", "parse", "queue", "first_response", "stream"]
        assert [step["model"] for step in tables["pipeline"]["steps"]] == ["step"] * 3
