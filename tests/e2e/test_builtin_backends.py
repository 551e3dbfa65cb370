"""Triton's own test backends in a real server that has no worker process."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from running_server import RunningServer

VALUE = """input [{{ name: "{0}" data_type: TYPE_INT32 dims: [ 1 ] }}]
output [{{ name: "{1}" data_type: TYPE_INT32 dims: [ 1 ] }}]
"""
CONTROL = '{{ name: "{0}" control [{{ kind: CONTROL_SEQUENCE_{0} {1} }}] }}'
SWITCH = "int32_false_true: [ 0, 1 ]"
CONTROLS = [
    *(CONTROL.format(name, SWITCH) for name in ("START", "READY", "END")),
    CONTROL.format("CORRID", "data_type: TYPE_UINT64"),
]
DECOUPLED = " model_transaction_policy { decoupled: true }\n"
MODELS = {
    "identity": VALUE.format("INPUT0", "OUTPUT0"),
    "square": VALUE.format("IN", "OUT") + DECOUPLED,
    "repeat": """input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
                         { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
                         { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
                 output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },
                          { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]"""
    + DECOUPLED,
    "sequence": VALUE.format("INPUT", "OUTPUT")
    + f"sequence_batching {{ control_input [ {', '.join(CONTROLS[:2])} ] }} max_batch_size: 2",
    "dyna_sequence": VALUE.format("INPUT", "OUTPUT")
    + f"sequence_batching {{ oldest {{ max_candidate_sequences: 4 }} control_input [ {', '.join(CONTROLS)} ] }}"
    + " max_batch_size: 4",
    "iterative_sequence": VALUE.format("INPUT", "OUTPUT")
    + "sequence_batching { iterative_sequence: true } max_batch_size: 2"
    + DECOUPLED
    + 'parameters { key: "execute_delay_ms" value { string_value: "5" } }',
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("builtin")
    for name, config in MODELS.items():
        (folder / "model_repository" / name / "1").mkdir(parents=True)
        (folder / "model_repository" / name / "config.pbtxt").write_text(f'backend: "{name}" {config}')
    with RunningServer(folder) as server:
        server.wait_until_listening()
        yield server


def tensor(name: str, *values: int, datatype: str = "INT32", has_batch: bool = False) -> dict[str, Any]:
    shape = [1, len(values)] if has_batch else [len(values)]
    return {"name": name, "datatype": datatype, "shape": shape, "data": list(values)}


def stream(served: RunningServer, model: str, *inputs: dict[str, Any]) -> list[dict[str, Any]]:
    connection = served.connect()
    body = json.dumps({"inputs": inputs})
    connection.request("POST", f"/v2/models/{model}/infer", body, {"Accept": "text/event-stream"})
    text = connection.getresponse().read().decode()
    connection.close()
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event]


def outputs(event: dict[str, Any]) -> dict[str, list[int]]:
    return {output["name"]: output["data"] for output in event["outputs"]}


def test_no_worker_is_needed(served: RunningServer) -> None:
    assert {entry["state"] for entry in served.index().values()} == {"READY"}
    assert served.children() == []


def test_identity_answers_and_counts(served: RunningServer) -> None:
    status, _, body = served.ask("POST", "/v2/models/identity/infer", {"inputs": [tensor("INPUT0", 7)]})
    assert (status, outputs(json.loads(body))) == (200, {"OUTPUT0": [7]})
    assert served.value("input_byte_size_counter", model="identity", version="1") == 4


def test_repeat_and_square_answer_as_often_as_they_are_asked(served: RunningServer) -> None:
    wait = tensor("WAIT", 0, datatype="UINT32")
    events = stream(served, "repeat", tensor("IN", 4, 5), tensor("DELAY", 1, 2, datatype="UINT32"), wait)
    assert [outputs(event) for event in events] == [{"OUT": [4], "IDX": [0]}, {"OUT": [5], "IDX": [1]}, {}]
    events = stream(served, "square", tensor("IN", 3))
    assert [outputs(event) for event in events] == [{"OUT": [3]}] * 3 + [{}]
    assert served.statistics("square")["inference_stats"]["success"]["count"] == 1


def test_iterative_sequence_counts_down(served: RunningServer) -> None:
    events = stream(served, "iterative_sequence", tensor("INPUT", 3, has_batch=True))
    assert [outputs(event)["OUTPUT"] for event in events] == [[2], [1], [0]]
    assert events[-1]["parameters"] == {"triton_final_response": True}


@pytest.mark.parametrize(("model", "extra"), [("sequence", 0), ("dyna_sequence", 1)])
def test_sequences_of_many_clients_are_kept_apart(served: RunningServer, model: str, extra: int) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}")
    client.start_stream(lambda result, error: answers.put((result, error)))
    expected = {}
    for step in range(3):
        for sequence in range(1, 6):
            given = grpcclient.InferInput("INPUT", [1, 1], "INT32")
            given.set_data_from_numpy(np.array([[sequence]], np.int32))
            key = f"{sequence}-{step}"
            expected[key] = sequence * (step + 1) + (extra * sequence if step == 2 else 0)
            client.async_stream_infer(
                model,
                [given],
                request_id=key,
                sequence_id=sequence,
                sequence_start=step == 0,
                sequence_end=step == 2,
            )
    found = {}
    for _ in expected:
        result, error = answers.get(timeout=30)
        assert error is None
        found[result.get_response().id] = int(result.as_numpy("OUTPUT")[0, 0])
    client.stop_stream()
    client.close()
    assert found == expected
