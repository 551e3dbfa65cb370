"""Broken and hostile bodies over HTTP: each gets Triton's status and text, and the next request works."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_client import INFER, MAX_INPUT_BYTES, Target, copy_body, running_target

PARSE = "failed to parse the request JSON buffer: "
RAISE = "Use --http-max-input-size to increase the limit."


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with running_target(tmp_path_factory.mktemp("bodies")) as running:
        yield running


@pytest.fixture(autouse=True)
def survives(target: Target) -> Iterator[None]:
    begin = len(target.log)
    yield
    assert target.serves()
    assert "Traceback" not in target.log[begin:]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "Missing a name for object member. at 1"),
        (b"\0", "Invalid value. at 0"),
        (b'{"inputs":[]', "Missing a comma or '}' after an object member. at 12"),
        (b'{"inputs":[1 2]}', "Missing a comma or ']' after an array element. at 13"),
        (b'{"inputs":[]}x', "The document root must not be followed by other values. at 13"),
        (b'{"a":"\\ud800"}', "The surrogate pair in string is invalid. at 6"),
        (b'{"a":"\\q"}', "Invalid escape character in string. at 6"),
        (b'{"a":"\x01"}', "Invalid escape character in string. at 6"),
        (b'{"a":1e999}', "Number too big to be stored in double. at 5"),
        (b'{"a":-}', "Invalid value. at 6"),
        (b"\xef\xbb\xbf{}", "Invalid value. at 0"),
        (b"[" * 1000, "Invalid value. at 1000"),
        (b'{"a":' * 1000, "Invalid value. at 5000"),
    ],
)
@pytest.mark.parametrize("path", [INFER, "/v2/models/copy/generate"])
def test_text_that_is_not_json_is_told_with_its_place(target: Target, path: str, body: bytes, text: str) -> None:
    assert target.post(path, body) == (500, PARSE + text)


def test_depth_is_limited(target: Target) -> None:
    deep = b"[" * 900 + b"]" * 900
    entry = b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":%b}]}'
    assert target.post(INFER, entry % deep) == (400, "JSON nesting depth exceeds maximum allowed limit (100)")
    assert target.post(INFER, deep) == (
        500,
        "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'",
    )
    for text in (b"[" * 130_000, b'{"a":' * 100_000, b"[" * 2_000_000, entry % (b"[" * 5000 + b"]" * 5000)):
        for path in (INFER, "/v2/models/copy/generate"):
            assert target.post(path, text) == (400, "JSON nesting depth exceeds maximum allowed limit (1024)")
    assert target.post("/v2/repository/index", b'{"ready":%b}' % deep)[0] == 400


NOT_ONE = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)
NO_ID = "[request id: <id_unknown>] "
HOLDS = " (input 'IN', whose shape holds 1)"
FEW = "Failed to parse 'data' field: shape does not match true shape" + HOLDS
MANY = "Unable to parse 'data': Shape does not match true shape of 'data' field" + HOLDS
UINT = "attempt to access JSON non-unsigned-integer as unsigned-integer"
TAKES = " (input 'IN' takes INT32)"
INT = "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer" + TAKES


@pytest.mark.parametrize(
    ("entry", "status", "text"),
    [
        ({"data": [1, 2]}, 500, MANY),
        ({"data": []}, 500, FEW),
        ({"data": 1}, 500, "Unable to parse 'data': attempt to access JSON non-array as array" + TAKES),
        ({"data": [1.0]}, 500, INT),
        ({"data": ["1"]}, 500, INT),
        ({"data": [2**64]}, 500, INT),
        ({"data": [-(2**63) - 1]}, 500, INT),
        ({"data": [1, "x"]}, 500, MANY),
        ({"shape": [-1]}, 500, f"Unable to parse 'shape': {UINT}"),
        ({"shape": [1.5]}, 500, f"Unable to parse 'shape': {UINT}"),
        ({"shape": [2**64]}, 500, f"Unable to parse 'shape': {UINT}"),
        ({"shape": "1"}, 500, "Unable to parse 'shape': attempt to access JSON non-array as array (input 'IN')"),
        (
            {"shape": [2**63]},
            400,
            f"invalid shape for input 'IN': shape [{2**63}] contains one or more invalid dimensions",
        ),
        (
            {"shape": [2**62, 4]},
            400,
            f"invalid shape for input 'IN': shape [{2**62},4] causes total element count to exceed maximum size "
            f"of {2**63 - 1}",
        ),
        (
            {"shape": [2**40]},
            400,
            f"JSON input 'IN' has a byte_size ({2**42} bytes) that exceeds the maximum allowed value of "
            f"{MAX_INPUT_BYTES} bytes. {RAISE}",
        ),
        (
            {"shape": []},
            400,
            NO_ID + "unexpected shape for input 'IN' for model 'copy'. Expected [-1], got []. ",
        ),
        ({"datatype": "INT7"}, 400, "invalid datatype for input IN"),
        (
            {"datatype": 5},
            500,
            "Unable to parse 'datatype': attempt to access JSON non-string as string (input 'IN')",
        ),
        (
            {"datatype": "FP32"},
            400,
            NO_ID + "inference input 'IN' data-type is 'FP32', but model 'copy' expects 'INT32'",
        ),
        (
            {"datatype": "FP16"},
            400,
            "receiving FP16 data via JSON is not supported. Please use the binary data format for input IN",
        ),
        ({"name": "NO"}, 400, "unexpected inference input 'NO' for model 'copy'"),
        ({"name": None}, 500, "Unable to parse 'name': attempt to access JSON non-string as string"),
        ({"parameters": {"binary_data_size": 4}}, 400, NOT_ONE + "set 'data' 'binary_data_size' (input 'IN')"),
    ],
)
def test_an_input_that_is_wrong_is_told_so(target: Target, entry: dict[str, Any], status: int, text: str) -> None:
    whole = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]} | entry
    assert target.post(INFER, json.dumps({"inputs": [whole]}).encode()) == (status, text)


def test_a_shape_without_elements_needs_no_data(target: Target) -> None:
    for data in (-1, None, ["x"], [1, 2]):
        entry = {"name": "IN", "datatype": "INT32", "shape": [0], "data": data}
        for _ in range(2):
            status, answer = target.post(INFER, json.dumps({"inputs": [entry]}).encode())
            assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, [])


def test_a_batching_model_needs_a_shape(target: Target) -> None:
    entry = {"name": "IN", "datatype": "INT32", "shape": [], "data": [1, 2, 3]}
    assert target.post("/v2/models/batch/infer", json.dumps({"inputs": [entry]}).encode()) == (
        400,
        NO_ID + "input 'IN' has no shape but model requires batch dimension for 'batch'",
    )


def test_names_may_come_only_once(target: Target) -> None:
    good = json.loads(copy_body(1))
    twice = {"inputs": good["inputs"] * 2}
    assert target.post(INFER, json.dumps(twice).encode()) == (400, NO_ID + "input 'IN' already exists in request")
    twice = good | {"outputs": [{"name": "OUT"}] * 2}
    assert target.post(INFER, json.dumps(twice).encode()) == (400, NO_ID + "output 'OUT' already exists in request")
    assert target.post("/v2/models/copy/generate", b'{"IN":1,"IN":2}') == (
        400,
        NO_ID + "input 'IN' already exists in request",
    )


def test_bytes_that_are_not_utf_8_come_back_as_they_were(target: Target) -> None:
    body = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":["\xff\xfe"]}]}'
    head = b"POST /v2/models/text/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    status, answer = target.send(head + body)
    assert (status, b'"data":["\xff\xfe"]' in answer) == (200, True)
    status, answer = target.send(head.replace(b"text", b"\xff\xff") + body)
    assert (status, b"Request for unknown model" in answer) == (404, True)


def test_json_beyond_the_limit_is_refused(target: Target) -> None:
    blanks = b" " * (MAX_INPUT_BYTES + 1)
    text = (
        f"request JSON size of {len(blanks)} bytes exceeds the maximum allowed input size of {MAX_INPUT_BYTES} "
        f"bytes. {RAISE}"
    )
    assert target.post(INFER, blanks) == (400, text)
    assert target.post("/v2/models/copy/generate", blanks) == (400, text)
    assert target.post(INFER, blanks, Inference_Header_Content_Length=str(len(blanks))) == (400, text)
    assert target.post("/v2/logging", blanks)[0] == 413
    assert target.post("/v2/repository/index", blanks)[0] == 413


def test_bodies_that_nobody_reads_are_thrown_away(target: Target) -> None:
    before = target.memory_bytes()
    blanks = b" " * (96 << 20)
    assert target.post("/v2/health/live", blanks) == (405, "Method Not Allowed")
    assert target.post("/nowhere", blanks) == (404, "Not Found")
    assert target.post("/v2/models/nosuch/infer", blanks)[0] == 404
    assert target.memory_bytes() < before + (48 << 20)


def test_a_bomb_is_not_inflated(target: Target) -> None:
    text = f"Decompressed data size exceeds the maximum allowed value of {MAX_INPUT_BYTES} bytes. {RAISE}"
    for size in (MAX_INPUT_BYTES + 1, 256 << 20):
        bomb = gzip.compress(bytes(size))
        assert target.post(INFER, bomb, Content_Encoding="gzip") == (400, text)
    assert target.post(INFER, zlib.compress(bytes(64 << 20)), Content_Encoding="deflate") == (400, text)
    assert target.post(INFER, gzip.compress(copy_body(1))[:-9], Content_Encoding="gzip")[0] == 400
    assert target.post(INFER, b"x", Content_Encoding="gzip")[0] == 400
    assert target.post(INFER, b"x", Content_Encoding="br") == (501, "Unsupported compression type")
    assert target.post("/v2/models/copy/generate", bomb, Content_Encoding="gzip")[0] == 400


@pytest.mark.parametrize("length", ["-1", "9" * 30, "200"])
def test_an_inference_header_beyond_the_body_is_refused(target: Target, length: str) -> None:
    body = copy_body(1)
    assert target.post(INFER, body, Inference_Header_Content_Length=length) == (
        400,
        f"inference header size should be in range (0, {len(body)}), got: {length}",
    )


@pytest.mark.parametrize(
    ("size", "tail", "text"),
    [
        (8, b"1234", "unexpected size for input 'IN', expecting 4 additional bytes for model 'copy'"),
        (4, b"12345", "unexpected additional input data for model 'copy'"),
        (2**63, b"1234", f"unexpected size for input 'IN', expecting {2**63 - 4} additional bytes for model 'copy'"),
        (2, b"12", NO_ID + "input byte size mismatch for input 'IN' for model 'copy'. Expected 4, got 2"),
    ],
)
def test_binary_data_has_to_have_its_size(target: Target, size: int, tail: bytes, text: str) -> None:
    entry = {"name": "IN", "datatype": "INT32", "shape": [1], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry]}).encode()
    assert target.post(INFER, head + tail, Inference_Header_Content_Length=str(len(head))) == (400, text)


def test_strings_that_are_cut_short_are_refused(target: Target) -> None:
    for tail in (b"\1\0\0", b"\5\0\0\0abc", b"\xff\xff\xff\xff", b"\1\0\0\0aX"):
        entry = {"name": "IN", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(tail)}}
        head = json.dumps({"inputs": [entry]}).encode()
        status, _ = target.post("/v2/models/text/infer", head + tail, Inference_Header_Content_Length=str(len(head)))
        assert status == 400


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v2/models/../..", 404, "Not Found"),
        ("/v2/models//infer", 404, "Not Found"),
        ("/v2/models/%2e%2e%2f/infer", 404, "Request for unknown model: '../' is not found"),
        ("/v2/models/%63opie/infer", 404, "Request for unknown model: 'copie' is not found, did you mean 'copy'?"),
        ("/v2/models/copy/versions/7/infer", 404, "Request for unknown model: 'copy' version 7 is not found"),
        ("/v2/models/copy/versions/-1/infer", 404, "Not Found"),
        ("/v2/models/copy/versions/x/infer", 404, "Not Found"),
        ("/v2/models/nosuch/trace/setting", 400, "Request for unknown model : nosuch"),
    ],
)
def test_paths_lead_to_models_and_nowhere_else(target: Target, path: str, status: int, text: str) -> None:
    assert target.post(path, b"") == (status, text)


def test_versions_of_any_length_are_answered(target: Target) -> None:
    for digits in (19, 20, 5000, 60000):
        assert target.post(f"/v2/models/copy/versions/{'9' * digits}/infer", b"{}")[0] in (400, 404)


def load(target: Target, name: str, parameters: object = None) -> tuple[int, str]:
    body = b"" if parameters is None else json.dumps({"parameters": parameters}).encode()
    return target.post(f"/v2/repository/models/{name}/load", body)


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "nosuch", "\\..\\x", "%00", "a" * 3000, "*", "~", "$(id)"])
def test_models_with_hostile_names_are_not_loaded(target: Target, name: str) -> None:
    status, text = load(target, name)
    assert status in (400, 500)
    assert "model name" in text or "failed to load" in text
    assert target.post(f"/v2/repository/models/{name}/unload", b"")[0] in (200, 400)


CONFIG = '{"backend":"python","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}]}'


@pytest.mark.parametrize(
    "path",
    [
        "../../evil.py", "/etc/evil", "", ".", "..", "1/../../../evil", "1/\0.py", "a" * 5000, "1/model.py/x",
        "//x", "1/" * 3000,
    ],
)  # fmt: skip
def test_files_of_a_load_stay_in_the_models_folder(target: Target, path: str) -> None:
    code = base64.b64encode(b"raise RuntimeError('not loaded')").decode()
    status, text = load(target, "copy", {"config": CONFIG, "file:1/model.py": code, f"file:{path}": code})
    assert status in (400, 500)
    assert text
    assert target.serves()


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ({"nosuch": "x"}, 500, "unexpected error on creating Triton parameter"),
        ({"config": 5}, 500, "attempt to access JSON non-string as string"),
        (
            {"config": "{"},
            500,
            "failed to load 'copy', failed to poll from model repository: Invalid config override: ",
        ),
        (
            {"config": json.dumps({"z" * 300_000: 1})},
            500,
            "failed to load 'copy', failed to poll from model repository: Invalid config override: zzz",
        ),
        ({"config": "[" * 100_000}, 500, "failed to load 'copy', failed to poll from model repository: Invalid config"),
        ({"file:1/model.py": ""}, 500, "failed to load 'copy', failed to poll from model repository: Load parameter"),
        ({"config": CONFIG, "file:1/model.py": 5}, 500, "attempt to access JSON non-string as string"),
        ([], 500, "attempt to get members for non-object"),
    ],
)
def test_overrides_that_are_wrong_change_nothing(target: Target, parameters: Any, status: int, text: str) -> None:
    refused, told = load(target, "copy", parameters)
    assert refused == status
    assert told.startswith(text)
    assert len(told) < 1200


def test_a_file_that_is_not_base64_or_huge_is_survived(target: Target) -> None:
    status, _ = load(target, "copy", {"config": CONFIG, "file:1/model.py": "*not base64*"})
    assert status in (400, 500)
    status, _ = load(target, "copy", {"config": CONFIG, "file:1/model.py": "A" * (24 << 20)})
    assert status in (400, 500)
    assert target.health_seconds() < 1
