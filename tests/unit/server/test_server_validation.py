"""What the server refuses before a model sees it, word for word."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.core.elements import encode_bytes
from trireme.core.errors import ErrorKind, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor
from trireme.registry.input_check import has_elements

NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try "
    "setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
MARK = "[request id: r7] "

CONFIGS = {
    "batched": 'max_batch_size: 8 input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]',
    "plain": 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]',
    "wild": 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]',
    "two": 'max_batch_size: 4 input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }, '
    '{ name: "B" data_type: TYPE_STRING dims: [ -1 ] } ]',
    "opt": 'input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }, '
    '{ name: "B" data_type: TYPE_FP32 dims: [ 4 ] optional: true }, '
    '{ name: "C" data_type: TYPE_FP32 dims: [ 4 ] } ]',
    "shaped": 'max_batch_size: 8 input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]',
    "shaped_wild": 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1, 2, -1 ] '
    "reshape { shape: [ -1, 1, 2, -1 ] } } ]",
}
OUTPUT = ' output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ] backend: "python"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    import sys

    world = sys.modules["registry_world"].World(tmp_path_factory.mktemp("validation"))
    for name, config in CONFIGS.items():
        world.add(name, config + OUTPUT, code="hold")
    started = asyncio.run(world.started())
    assert len(started.registry.index(True, started.registry.scan())) == len(CONFIGS)
    return started


def fp32(name: str, *shape: int, size: int | None = None) -> Tensor:
    count = 1
    for dim in shape:
        count *= abs(dim)
    return Tensor(name, "FP32", list(shape), bytes(4 * count if size is None else size))


def text(name: str, shape: list[int], data: bytes) -> Tensor:
    return Tensor(name, "BYTES", shape, data)


def ask(model: str, *tensors: Tensor, outputs: tuple[str, ...] = ()) -> InferenceRequest:
    inputs = {tensor.name: tensor for tensor in tensors}
    request = InferenceRequest(model, "", "r7", inputs, lambda response: None)
    request.requested_outputs = outputs
    return request


A = fp32("A", 1, 4)
TEXTS = encode_bytes([b"a", b"bb"])

REFUSALS = [
    (
        ask("batched", fp32("IN", 1, 5)),
        MARK + "unexpected shape for input 'IN' for model 'batched'. Expected [-1,4], got [1,5]. " + NOTE,
    ),
    (
        ask("batched", fp32("IN", 4)),
        MARK + "unexpected shape for input 'IN' for model 'batched'. Expected [-1,4], got [4]. " + NOTE,
    ),
    (ask("plain", fp32("IN", 5)), MARK + "unexpected shape for input 'IN' for model 'plain'. Expected [4], got [5]. "),
    (
        ask("plain", fp32("IN")),
        MARK + "unexpected shape for input 'IN' for model 'plain'. Expected [4], got []. ",
    ),
    (
        ask("batched", fp32("IN")),
        MARK + "input 'IN' has no shape but model requires batch dimension for 'batched'",
    ),
    (ask("batched", fp32("IN", 9, 4)), MARK + "inference request batch-size must be <= 8 for 'batched'"),
    (
        ask("batched", fp32("IN", 0, 4)),
        MARK + "input byte size mismatch for input 'IN' for model 'batched'. Expected 16, got 0",
    ),
    (
        ask("batched", fp32("IN", 1, 4, size=12)),
        MARK + "input byte size mismatch for input 'IN' for model 'batched'. Expected 16, got 12",
    ),
    (
        ask("batched", fp32("IN", 1, -1)),
        MARK + "All input dimensions should be specified for input 'IN' for model 'batched', got [1,-1]",
    ),
    (
        ask("wild", fp32("IN", -1, 2)),
        MARK + "All input dimensions should be specified for input 'IN' for model 'wild', got [-1,2]",
    ),
    (ask("batched", fp32("XX", 1, 4)), "unexpected inference input 'XX' for model 'batched'"),
    (
        ask("batched", fp32("IN", 1, 4), fp32("XX", 1, 4)),
        MARK + "expected 1 inputs but got 2 inputs for model 'batched'. Got input(s) ['IN','XX'], but missing required "
        "input(s) []. Please provide all required input(s).",
    ),
    (
        ask("batched"),
        MARK + "expected 1 inputs but got 0 inputs for model 'batched'. Got input(s) [], but missing required "
        "input(s) ['IN']. Please provide all required input(s).",
    ),
    (
        ask("batched", Tensor("IN", "INT32", [1, 4], bytes(16))),
        MARK + "inference input 'IN' data-type is 'INT32', but model 'batched' expects 'FP32'",
    ),
    (
        ask("batched", Tensor("IN", "FP99", [1, 4], bytes(16))),
        MARK + "inference input 'IN' data-type is '<invalid>', but model 'batched' expects 'FP32'",
    ),
    (
        ask("batched", fp32("IN", 1, 4), outputs=("OUT", "ZZ")),
        "unexpected inference output 'ZZ' for model 'batched'",
    ),
    (
        ask("two", A),
        MARK + "expected 2 inputs but got 1 inputs for model 'two'. Got input(s) ['A'], but missing required "
        "input(s) ['B']. Please provide all required input(s).",
    ),
    (
        ask("two", A, text("B", [2, 1], encode_bytes([b"a", b"b"]))),
        MARK + "input 'B' batch size does not match other inputs for 'two'",
    ),
    (
        ask("opt", fp32("A", 4)),
        MARK + "expected number of inputs between 2 and 3 but got 1 inputs for model 'opt'. Got input(s) ['A'], but "
        "missing required input(s) ['C']. Please provide all required input(s).",
    ),
    (
        ask("opt", fp32("A", 4), fp32("B", 4)),
        MARK + "expected number of inputs between 2 and 3 but got 2 inputs for model 'opt'. Got input(s) ['A','B'], "
        "but missing required input(s) ['C']. Please provide all required input(s).",
    ),
    (ask("opt", fp32("A", 4), fp32("Z", 4)), "unexpected inference input 'Z' for model 'opt'"),
    (
        ask("two", A, text("B", [1, 2], encode_bytes([b"a", b"b", b"c"]))),
        MARK + "unexpected number of string elements 3 for inference input 'B' for model 'two', expecting 2",
    ),
    (
        ask("two", A, text("B", [1, 2], encode_bytes([b"a"]))),
        MARK + "expected 2 string elements for inference input 'B' for model 'two', got 1",
    ),
    (
        ask("two", A, text("B", [1, 2], encode_bytes([b"a"]) + b"\0\0")),
        MARK + "incomplete string length indicator for inference input 'B' for model 'two', expecting 4 bytes but "
        "only 2 bytes available. Please make sure the string length indicator is in one buffer.",
    ),
    (
        ask("two", A, text("B", [1, 2], encode_bytes([b"a", b"bcdef"])[:-2])),
        "incomplete string data for inference input 'B', expecting string of length 5 but only 3 bytes available",
    ),
    (
        ask("two", A, text("B", [1, 0], encode_bytes([b"a"]))),
        MARK + "unexpected number of string elements 1 for inference input 'B' for model 'two', expecting 0",
    ),
    (
        ask("two", A, text("B", [1, -1], b"")),
        MARK + "All input dimensions should be specified for input 'B' for model 'two', got [1,-1]",
    ),
    (
        ask("two", A, text("B", [1, 1], struct.pack("<I", 0xFFFFFFFF))),
        "incomplete string data for inference input 'B', expecting string of length 4294967295 "
        "but only 0 bytes available",
    ),
    (
        ask("batched", fp32("IN", 0, 4, size=16)),
        MARK + "input 'IN' has a batch dimension of 0 for model 'batched', got [0,4]. Send at least one item.",
    ),
]


@pytest.mark.parametrize(("request_", "message"), REFUSALS, ids=[message[-60:] for _, message in REFUSALS])
def test_refusals(server: Any, request_: InferenceRequest, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        server.inference.infer(request_)
    assert caught.value.message == message
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def test_checks_are_made_in_order(server: Any) -> None:
    """Outputs, count, batch size, then the inputs one by one."""
    wrong = ask("two", Tensor("A", "INT32", [9, 5], b""), text("B", [1, 1], b""), outputs=("ZZ",))
    texts = []
    for repair in (
        lambda: setattr(wrong, "requested_outputs", ()),
        lambda: wrong.inputs.update(B=text("B", [9, 1], b"")),
        lambda: wrong.inputs.update(A=Tensor("A", "INT32", [1, 5], b""), B=text("B", [1, 1], b"")),
        lambda: wrong.inputs.update(A=Tensor("A", "FP32", [1, 5], b"")),
        lambda: wrong.inputs.update(A=Tensor("A", "FP32", [1, 4], b"")),
        lambda: wrong.inputs.update(A=fp32("A", 1, 4)),
        lambda: wrong.inputs.update(B=text("B", [1, 1], encode_bytes([b"x"]))),
    ):
        with pytest.raises(ServingError) as caught:
            server.inference.infer(wrong)
        texts.append(caught.value.message.removeprefix(MARK).split(" for ")[0])
        repair()
    assert texts == [
        "unexpected inference output 'ZZ'",
        "input 'B' batch size does not match other inputs",
        "inference request batch-size must be <= 4",
        "inference input 'A' data-type is 'INT32', but model 'two' expects 'FP32'",
        "unexpected shape",
        "input byte size mismatch",
        "expected 1 string elements",
    ]
    server.inference.infer(wrong)


@pytest.mark.parametrize(
    ("request_", "batch_size"),
    [
        (ask("batched", fp32("IN", 1, 4)), 1),
        (ask("batched", fp32("IN", 8, 4)), 8),
        (ask("batched", Tensor("IN", "FP32", (2, 4), memoryview(bytes(32)))), 2),
        (ask("batched", fp32("IN", 3, 4), outputs=("OUT",)), 3),
        (ask("plain", fp32("IN", 4)), 1),
        (ask("wild", fp32("IN", 7, 2)), 1),
        (ask("wild", fp32("IN", 0, 2)), 1),
        (ask("two", A, text("B", [1, 2], TEXTS)), 1),
        (ask("two", A, text("B", [1, 0], b"")), 1),
        (ask("opt", fp32("A", 4), fp32("C", 4)), 1),
        (ask("opt", fp32("C", 4), fp32("B", 4), fp32("A", 4)), 1),
    ],
)
def test_good_requests_reach_the_model(server: Any, request_: InferenceRequest, batch_size: int) -> None:
    server.inference.infer(request_)
    assert request_.batch_size == batch_size
    assert request_.served_version == "1"
    assert request_.arrival_ns > 0


def test_shapes_may_alternate(server: Any) -> None:
    for rows in (1, 2, 1, 8, 2):
        request = ask("batched", fp32("IN", rows, 4))
        server.inference.infer(request)
        assert request.batch_size == rows
    for rows in (2, 1):
        with pytest.raises(ServingError, match="byte size mismatch"):
            server.inference.infer(ask("batched", fp32("IN", rows, 4, size=64)))


def test_reshape_is_applied_after_the_check(server: Any) -> None:
    request = ask("shaped", fp32("IN", 3, 1))
    server.inference.infer(request)
    assert request.inputs["IN"].shape == (3,)
    request = ask("shaped_wild", fp32("IN", 5, 2, 6))
    server.inference.infer(request)
    assert request.inputs["IN"].shape == (5, 1, 2, 6)


def test_output_reshape_gives_clients_the_configured_dims(world: Any) -> None:
    async def scenario() -> None:
        config = (
            'backend: "python" max_batch_size: 4 input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ] '
            'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]'
        )
        world.add("model", config)
        server = await world.started()
        response = await world.infer(server, "model", rows=3)
        assert response.outputs[0].shape == (3, 2, 2)

    asyncio.run(scenario())


def test_request_is_not_touched_where_it_is_refused(server: Any) -> None:
    request = ask("shaped", fp32("IN", 3, 2))
    inputs = request.inputs
    with pytest.raises(ServingError):
        server.inference.infer(request)
    assert request.inputs is inputs
    assert request.served_version == ""


@given(st.lists(st.binary(max_size=20), max_size=12), st.binary(max_size=3), st.integers(-2, 2))
def test_bytes_are_counted_to_the_last_one(elements: list[bytes], tail: bytes, offset: int) -> None:
    data = encode_bytes(elements)
    assert has_elements(data, len(elements))
    assert has_elements(memoryview(data), len(elements))
    if tail:
        assert not has_elements(data + tail, len(elements))
    if data:
        assert not has_elements(data[:-1], len(elements))
    if offset and len(elements) + offset >= 0:
        assert not has_elements(data, len(elements) + offset)


def test_an_id_has_a_limit(server: Any) -> None:
    request_ = ask("plain", fp32("IN", 4))
    request_.id = "x" * ((64 << 10) + 1)
    with pytest.raises(ServingError) as caught:
        server.inference.infer(request_)
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT
    assert caught.value.message == "the id of the request has 65537 characters, more than the 65536 that it may have"


def test_the_texts_of_parameters_have_a_limit_together(server: Any) -> None:
    request_ = ask("plain", fp32("IN", 4))
    request_.parameters = {"a": "x" * (2 << 20), "b": "x" * (2 << 20), "c": 5}
    server.inference.infer(request_)
    request_ = ask("plain", fp32("IN", 4))
    request_.parameters = {"a": "x" * (2 << 20), "b": "x" * (2 << 20), "c": "x"}
    with pytest.raises(ServingError) as caught:
        server.inference.infer(request_)
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT
    assert caught.value.message == (
        "the parameters of the request have 4194305 characters, more than the 4194304 that they may have; send long "
        "texts as inputs"
    )
