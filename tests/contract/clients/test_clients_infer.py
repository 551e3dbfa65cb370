"""infer() of the official clients, over HTTP and gRPC: datatypes, sizes, outputs, parameters, compression, errors."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def extremes(datatype: str) -> np.ndarray:
    dtype = np.dtype(NUMPY[datatype])
    if dtype.kind == "b":
        return np.array([True, False, True])
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([limits.min, 0, 1, limits.max], dtype=dtype)


@pytest.mark.parametrize("datatype", sorted(NUMPY))
def test_numbers_of_every_datatype_come_back(door, datatype) -> None:
    given = extremes(datatype)
    found = door.infer("types", {f"IN_{datatype}": given}).as_numpy(f"OUT_{datatype}")
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize("datatype", sorted(set(NUMPY) - {"FP16"}))
@pytest.mark.parametrize("is_binary_in", [True, False])
def test_numbers_travel_as_json_too(http_door, datatype, is_binary_in) -> None:
    given = np.array([True, False]) if datatype == "BOOL" else np.array([0, 1, 100], dtype=NUMPY[datatype])
    entry = http_door.tensor(f"IN_{datatype}", given, binary_data=is_binary_in)
    wanted = [http_door.output(f"OUT_{datatype}", binary_data=not is_binary_in)]
    found = http_door.client.infer("types", [entry], outputs=wanted).as_numpy(f"OUT_{datatype}")
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found, given)


def test_bfloat16_comes_back(door) -> None:
    # Clients since 26.06 want the dtype of ml_dtypes, those before it float32.
    dtype = ml_dtypes.bfloat16 if ml_dtypes is not None else np.float32
    given = np.array([1.5, -2.0, 0.0], dtype=dtype)
    result = door.client.infer("types", [door.tensor("IN_BF16", given, "BF16")])
    np.testing.assert_array_equal(result.as_numpy("OUT_BF16").astype(np.float32), given.astype(np.float32))


def test_bytes_come_back_whatever_they_hold(door) -> None:
    given = np.array([b"", b"\0\xff", "ünï".encode(), b"x" * 70_000], dtype=object)
    assert door.infer("types", {"IN_BYTES": given}).as_numpy("OUT_BYTES").tolist() == given.tolist()


@pytest.mark.parametrize("datatype", ["FP32", "INT16", "BYTES"])
def test_tensors_without_elements_come_back(door, datatype) -> None:
    given = np.zeros([0], dtype=NUMPY.get(datatype, object))
    found = door.infer("types", {f"IN_{datatype}": given}).as_numpy(f"OUT_{datatype}")
    assert found.shape == (0,)


def test_twenty_megabytes_come_back(door) -> None:
    given = np.random.default_rng(1).random(5_000_000, dtype=np.float32)
    np.testing.assert_array_equal(door.infer("types", {"IN_FP32": given}).as_numpy("OUT_FP32"), given)


def test_several_tensors_in_one_request(door) -> None:
    given = {f"IN_{name}": extremes(name) for name in NUMPY}
    result = door.infer("types", given, [door.output(f"OUT_{name}") for name in NUMPY])
    for name in NUMPY:
        np.testing.assert_array_equal(result.as_numpy(f"OUT_{name}"), extremes(name))


def test_only_wanted_outputs_are_sent(door) -> None:
    result = door.infer("describe", {}, [door.output("LENGTH")])
    assert result.as_numpy("TEXT") is None
    assert result.as_numpy("LENGTH").shape == (1,)


def test_a_model_learns_what_the_client_said(door) -> None:
    known = door.text(
        "describe",
        {"IN": np.array([b"x"], dtype=object)},
        request_id="r-7",
        priority=1,
        timeout=5_000_000,
        sequence_id=42,
        sequence_start=True,
        sequence_end=True,
        parameters={"n": -5, "s": "ünï", "b": True, "f": 0.5},
        headers={"x-key": "forwarded", "other": "not"},
    )
    assert known["id"] == "r-7"
    assert known["correlation_id"] == 42
    assert known["flags"] == 3
    assert known["timeout"] == 5_000_000
    assert known["parameters"] == {"n": -5, "s": "ünï", "b": True, "f": 0.5, "x-key": "forwarded"}
    assert known["inputs"] == ["IN"]
    assert known["outputs"] == ["LENGTH", "TEXT"]


def test_a_sequence_may_have_a_name(door) -> None:
    known = door.text("describe", {}, sequence_id="voyage", sequence_start=True)
    assert known["correlation_id"] == "voyage"


def test_response_parameters_and_the_id_reach_the_client(door) -> None:
    response = door.plain(door.infer("describe", {}, request_id="7").get_response())
    values = response["parameters"]
    if door.name == "grpc":
        values = {key: next(iter(value.values())) for key, value in values.items()}
    assert (values["is_true"], int(values["seven"]), values["word"]) == (True, 7, "ünï")
    assert response["id"] == "7"
    assert response["model_version"] == "1"


@pytest.mark.parametrize("key", ["sequence_id", "priority", "triton_x"])
def test_reserved_parameters_are_refused_before_they_are_sent_or_after(door, key) -> None:
    with pytest.raises(InferenceServerException):
        door.infer("describe", {}, parameters={key: 1})


def test_classes_take_the_place_of_scores(door) -> None:
    scores = np.array([[0.5, 3, 1, 2], [9, 8, 7, 6]], dtype=np.float32)
    found = door.infer("labels", {"IN": scores}, [door.output("OUT", class_count=2)]).as_numpy("OUT")
    assert found.tolist() == [[b"3.000000:1:dog", b"2.000000:3:fish"], [b"9.000000:0:cat", b"8.000000:1:dog"]]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [3, 300_000])
def test_compression_both_ways(door, algorithm, size) -> None:
    options = (
        {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        if door.name == "http"
        else {"compression_algorithm": algorithm}
    )
    given = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(door.infer("types", {"IN_FP32": given}, **options).as_numpy("OUT_FP32"), given)


def test_an_ensemble_looks_like_a_model(door) -> None:
    given = np.array([1, 2], dtype=np.float32)
    np.testing.assert_array_equal(door.infer("pipeline", {"IN": given}).as_numpy("OUT"), given)


@pytest.mark.parametrize(
    ("model", "inputs", "version", "status", "text"),
    [
        ("nosuch", {}, "", ("400", "404", "StatusCode.NOT_FOUND"), "Request for unknown model: 'nosuch' is not found"),
        (
            "types",
            {},
            "3",
            ("400", "404", "StatusCode.NOT_FOUND"),
            "Request for unknown model: 'types' version 3 is not found",
        ),
        (
            "failing",
            {"MODE": np.array([1], dtype=np.int32)},
            "",
            ("404", "StatusCode.NOT_FOUND"),
            "one is not found",
        ),
        (
            "failing",
            {"MODE": np.array([1], dtype=np.int64)},
            "",
            ("400", "StatusCode.INVALID_ARGUMENT"),
            "inference input 'MODE' data-type is 'INT64', but model 'failing' expects 'INT32'",
        ),
    ],
)
def test_errors_carry_status_and_text(door, model, inputs, version, status, text) -> None:
    with pytest.raises(InferenceServerException) as caught:
        door.infer(model, inputs, model_version=version)
    assert caught.value.status() in status
    assert text in caught.value.message()


def test_an_exception_of_a_model_is_told_with_its_place(door) -> None:
    with pytest.raises(InferenceServerException) as caught:
        door.infer("failing", {"MODE": np.array([0], dtype=np.int32)})
    assert caught.value.status() in ("500", "StatusCode.INTERNAL")
    assert "ValueError: zero is not wanted" in caught.value.message()
    assert "model.py(" in caught.value.message()


def test_a_decoupled_model_is_refused_where_one_response_is_expected(door) -> None:
    with pytest.raises(InferenceServerException, match="doesn't support models with decoupled transaction policy"):
        door.infer("count", {"COUNT": np.array([1], dtype=np.int32)})


def test_a_raw_request_is_the_data_of_the_only_input(server) -> None:
    data = struct.pack("<4f", 1, 2, 3, 4)
    headers = {"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"}
    status, found, body = server.ask("POST", "/v2/models/labels/infer", data, headers)
    assert status == 200
    head_size = int(found["inference-header-content-length"])
    assert json.loads(body[:head_size])["outputs"][0]["shape"] == [1, 4]
    assert body[head_size:] == data


def test_a_body_made_by_the_client_is_understood(server, http_door) -> None:
    given = np.array([1, 2, 3], dtype=np.float32)
    body, size = http_door.client.generate_request_body([http_door.tensor("IN_FP32", given)])
    headers = {"Inference-Header-Content-Length": str(size)}
    status, found, answer = server.ask("POST", "/v2/models/types/infer", body, headers)
    assert status == 200
    parsed = http_door.client.parse_response_body(answer, header_length=int(found["inference-header-content-length"]))
    np.testing.assert_array_equal(parsed.as_numpy("OUT_FP32"), given)


def test_a_client_that_waits_too_little_gives_up(grpc_door) -> None:
    wait = {"WAIT_S": np.array([5], dtype=np.float32)}
    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        grpc_door.infer("describe", wait, client_timeout=0.1)
    assert grpc_door.text("describe", {})["cancelled"] >= 1
