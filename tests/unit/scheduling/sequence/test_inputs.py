"""Control tensors of every type, and states that go from response to request without the client seeing them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.config.model_config import ModelConfig
from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import InvalidArgumentError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.failure_reasons import OTHER
from trireme.observe.stats import ModelStats
from trireme.scheduling.scheduler import create_scheduler

START, END = 1, 2
TEXT = """
name: "model" backend: "python" max_batch_size: %d
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }, { name: "WORDS" data_type: TYPE_STRING dims: [2] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }, { name: "SEEN_OUT" data_type: TYPE_INT32 dims: [1] }]
sequence_batching {
  max_sequence_idle_microseconds: 1000
  control_input [
    { name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [-3, 4] }] },
    { name: "END" control [{ kind: CONTROL_SEQUENCE_END fp32_false_true: [0.5, 1.5] }] },
    { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] }] },
    { name: "ID" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: %s }] }
  ]
  %s
}
"""
STATES = """
state [
  { input_name: "HIDDEN_IN" output_name: "HIDDEN_OUT" data_type: TYPE_FP32 dims: [2, -1] },
  { input_name: "SEEN_IN" output_name: "SEEN_OUT" data_type: TYPE_INT32 dims: [1]
    initial_state { name: "first" data_type: TYPE_INT32 dims: [1] data_file: "seen" } }
]
"""


def build(bench: Any, folder: Path | None = None, size: int = 4, id_type: str = "TYPE_UINT64", states: str = "") -> Any:
    config = ModelConfig.from_message(parse_text(TEXT % (size, id_type, states), "config.pbtxt"))
    bench.scheduler = create_scheduler(
        config, ModelStats("model", 1), clock=bench.world.clock, call_later=bench.world.call_later, folder=folder
    )
    return bench.instance()


def controls(request: Any) -> dict[str, Any]:
    names = ("START", "END", "READY", "ID")
    return {name: request.inputs[name].to_numpy().reshape(-1)[0] for name in names if name in request.inputs}


def test_controls_say_where_in_its_sequence_a_request_stands(bench: Any) -> None:
    instance = build(bench)
    for name, flags in (("a", START), ("b", 0), ("c", END)):
        bench.send(name, correlation_id=9, flags=flags)
    found = []
    for _ in range(3):
        found.append(controls(instance.batches[0].requests[0]))
        instance.finish()
    assert found == [
        {"START": 4, "END": 0.5, "READY": True, "ID": 9},
        {"START": -3, "END": 0.5, "READY": True, "ID": 9},
        {"START": -3, "END": 1.5, "READY": True, "ID": 9},
    ]


@pytest.mark.parametrize(("size", "shape"), [(4, (1, 1)), (0, (1,))])
def test_controls_have_one_element_per_request(bench: Any, size: int, shape: tuple[int, ...]) -> None:
    instance = build(bench, size=size)
    bench.send("a", correlation_id=9, flags=START)
    inputs = instance.batches[0].requests[0].inputs
    expected = {"START": "INT32", "END": "FP32", "READY": "BOOL", "ID": "UINT64"}
    assert {name: inputs[name].datatype for name in expected} == expected
    assert {tuple(inputs[name].shape) for name in expected} == {shape}


@pytest.mark.parametrize(
    ("id_type", "given", "seen"),
    [
        ("TYPE_UINT64", (1 << 64) - 1, np.uint64((1 << 64) - 1)),
        ("TYPE_INT64", (1 << 64) - 1, np.int64(-1)),
        ("TYPE_UINT32", (1 << 32) + 5, np.uint32(5)),
        ("TYPE_INT32", 77, np.int32(77)),
        ("TYPE_STRING", "ü-1", "ü-1".encode()),
    ],
)
def test_the_correlation_id_comes_in_the_type_that_is_declared(
    bench: Any, id_type: str, given: int | str, seen: Any
) -> None:
    instance = build(bench, id_type=id_type)
    bench.send("a", correlation_id=given, flags=START)
    value = controls(instance.batches[0].requests[0])["ID"]
    assert (type(value), value) == (type(seen), seen)


def test_a_null_request_has_every_input_and_says_so(bench: Any) -> None:
    instance = build(bench)
    bench.send("a", correlation_id=1, flags=START)
    instance.finish()
    request = bench.client.request("b", correlation_id=2, flags=START)
    request.inputs["WORDS"] = Tensor("WORDS", "BYTES", (1, 2), b"\x01\0\0\0x\x02\0\0\0yz")
    bench.scheduler.enqueue(request)
    null, real = instance.batches[0].requests
    assert null.inputs.keys() == real.inputs.keys()
    assert controls(null) == {"START": -3, "END": 0.5, "READY": False, "ID": 0}
    assert null.inputs["WORDS"].to_numpy().tolist() == [[b"", b""]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "seen").write_bytes(np.array([40], "<i4").tobytes())
    return tmp_path


def answer(instance: Any, hidden: list[float], seen: int) -> None:
    shape = (1, 2, len(hidden) // 2)
    outputs = [
        Tensor.from_numpy("OUTPUT0", np.zeros((1, 1), "f4")),
        Tensor.from_numpy("HIDDEN_OUT", np.array(hidden, "f4").reshape(shape)),
        Tensor.from_numpy("SEEN_OUT", np.array([[seen]], "i4")),
    ]
    instance.finish([InferenceResponse(outputs)])


def states(instance: Any) -> tuple[Any, Any]:
    inputs = instance.batches[0].requests[0].inputs
    return inputs["HIDDEN_IN"].to_numpy().tolist(), inputs["SEEN_IN"].to_numpy().tolist()


def test_states_go_from_one_request_to_the_next_and_begin_anew_with_a_start(bench: Any, folder: Path) -> None:
    instance = build(bench, folder, states=STATES)
    bench.send("a", correlation_id=1, flags=START)
    assert states(instance) == ([[[0.0], [0.0]]], [[40]])
    answer(instance, [1, 2, 3, 4], 41)
    bench.send("b", correlation_id=1)
    assert states(instance) == ([[[1.0, 2.0], [3.0, 4.0]]], [[41]])
    instance.finish([InferenceResponse([])])
    bench.send("c", correlation_id=1)
    assert states(instance) == ([[[1.0, 2.0], [3.0, 4.0]]], [[41]])
    answer(instance, [5, 6], 42)
    bench.send("d", correlation_id=1, flags=START)
    assert states(instance) == ([[[0.0], [0.0]]], [[40]])


@pytest.mark.parametrize(
    ("requested", "received"),
    [((), ["OUTPUT0", "SEEN_OUT"]), (("OUTPUT0",), ["OUTPUT0"]), (("SEEN_OUT",), ["SEEN_OUT"])],
)
def test_a_client_gets_a_state_only_where_it_is_an_output_it_asked_for(
    bench: Any, folder: Path, requested: tuple[str, ...], received: list[str]
) -> None:
    instance = build(bench, folder, states=STATES)
    [request] = bench.send("a", correlation_id=1, flags=START, requested_outputs=requested)
    asked = request.requested_outputs
    assert not requested or {"HIDDEN_OUT", "SEEN_OUT", *requested} == set(asked)
    answer(instance, [1, 2], 41)
    assert [tensor.name for tensor in bench.client.answers["a"][0].outputs] == received
    assert request.requested_outputs == requested
    bench.send("b", correlation_id=1)
    assert states(instance)[1] == [[41]]


def test_a_state_file_that_is_missing_or_short_is_named(bench: Any, folder: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="initial state 'seen' of 'SEEN_IN' is a file"):
        build(bench, None, states=STATES)
    (folder / "initial_state" / "seen").write_bytes(b"\0")
    with pytest.raises(InvalidArgumentError, match="expects 4 bytes, but the data provided from seen only has 1 bytes"):
        build(bench, folder, states=STATES)
    with pytest.raises(InvalidArgumentError, match="failed to read initial state file"):
        build(bench, folder, states=STATES.replace('"seen"', '"other"'))
    with pytest.raises(InvalidArgumentError, match="must stay in"):
        build(bench, folder, states=STATES.replace('"seen"', '"../seen"'))
    with pytest.raises(InvalidArgumentError, match="must not contain a null character"):
        build(bench, folder, states=STATES.replace('"seen"', '"a\\000b"'))


def test_a_sequence_whose_state_cannot_be_kept_fails_and_gives_its_slot_back(bench: Any, tmp_path: Path) -> None:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "seen").write_bytes(bytes(4))
    instance = build(bench, tmp_path, size=1, states=STATES)
    stats = ModelStats("model", 1)
    [request] = bench.send("a", correlation_id=1, flags=START | END)
    request.answer_stats = stats
    gone = memoryview(bytes(4))
    gone.release()
    instance.finish([InferenceResponse([Tensor("SEEN_OUT", "INT32", (1, 1), gone)])])
    assert bench.client.error("a").message.startswith("the server failed to answer the request: ValueError: ")
    assert stats.fail_counts[OTHER] == 1
    bench.send("b", correlation_id=2, flags=START | END)
    assert instance.seen == [["a"], ["b"]]


def test_a_correlation_id_that_is_no_utf_8_is_given_as_near_as_can_be(bench: Any) -> None:
    instance = build(bench, id_type="TYPE_STRING")
    bench.send("a", correlation_id="s\udcff", flags=START)
    assert bytes(instance.batches[0].requests[0].inputs["ID"].data)[4:] == b"s?"


@pytest.mark.timeout(20)
def test_a_state_file_that_is_a_pipe_is_not_waited_for(bench: Any, folder: Path) -> None:
    (folder / "initial_state" / "seen").unlink()
    os.mkfifo(folder / "initial_state" / "seen")
    with pytest.raises(InvalidArgumentError, match="/seen': it is not a regular file"):
        build(bench, folder, states=STATES)
    (folder / "initial_state" / "seen").unlink()
    (folder / "initial_state" / "seen").symlink_to("seen")
    with pytest.raises(InvalidArgumentError, match="/seen': Too many levels of symbolic links"):
        build(bench, folder, states=STATES)
