"""Requests whose answers are compared: each a name, a method, a path, headers and a body."""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple


class Case(NamedTuple):
    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


VALUES: dict[str, list[object]] = {
    "bool": [True, False],
    "uint8": [0, 255],
    "uint16": [0, 65535],
    "uint32": [0, 4294967295],
    "uint64": [0, 18446744073709551615],
    "int8": [-128, 127],
    "int16": [-32768, 32767],
    "int32": [-2147483648, 2147483647],
    "int64": [-9223372036854775808, 9223372036854775807],
    "fp32": [0.1, -2.5, 1e20, 3, 1e-7, 16777216.0, 123456.789],
    "fp64": [0.1, -2.5, 1e200, 3, 5e-324],
    "string": ["hello", "", "ünï", 'quo"te\\', "tab\tline\n", "\u0001"],
}
WIRE = {name: name.upper() for name in VALUES} | {"string": "BYTES"}
MALFORMED = (
    b"",
    b"{",
    b"}",
    b"[",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"{}",
    b'{"inputs"}',
    b'{"inputs":}',
    b'{"inputs":[}',
    b'{"inputs":[]',
    b'{"inputs":[]}x',
    b'{"inputs":[],}',
    b"{'inputs':[]}",
    b'{"inputs":{}}',
    b'{"inputs":[1]}',
    b'{"inputs":[{}]}',
    b"\xff\xfe",
    b'{"inputs":[]} {}',
    b'{"id":1,"inputs":[]}',
    b'{"id":"a","inputs":[],"outputs":1}',
    b'{"parameters":[],"inputs":[]}',
    b'{"inputs":[{"name":1}]}',
    b'{"inputs":[{"name":"IN"}]}',
    b'{"inputs":[{"name":"IN","shape":1}]}',
    b"tru",
    b'{"a" 1}',
    b'{"a":01}',
    b'{"a":1 "b":2}',
    b"[1 2]",
    b'{"a":"\\x"}',
    b'{"a":"',
    b'{"a":-}',
    b'{"a":1.}',
    b'{"a":nul}',
    b"[" * 2000,
)


def infer(model: str, inputs: list[dict[str, object]], name: str = "", version: str = "", **extra: object) -> Case:
    path = f"/v2/models/{model}{'/versions/' + version if version else ''}/infer"
    body = json.dumps({"inputs": inputs, **extra}).encode()
    return Case(name or f"infer {model} {body[:90]!r}", "POST", path, {}, body)


def tensor(name: str, datatype: str, shape: list[int], data: object = None, **parameters: object) -> dict[str, object]:
    entry: dict[str, object] = {"name": name, "datatype": datatype, "shape": shape}
    if data is not None:
        entry["data"] = data
    if parameters:
        entry["parameters"] = parameters
    return entry


def all_cases(seed: int) -> Iterator[Case]:
    yield from plain_cases()
    yield from data_cases()
    yield from shape_cases()
    yield from binary_cases()
    yield from parameter_cases()
    yield from generate_cases()
    yield from malformed_cases()
    yield from random_cases(random.Random(seed), 400)


PATHS = (
    "/v2",
    "/v2/",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/health",
    "/v2/models",
    "/v2/models/stats/x",
    "/",
    "/metrics",
    *(
        f"/v2/models/{model}{rest}"
        for model in ("batch", "nosuch", "two")
        for rest in ("", "/ready", "/config", "/versions/1", "/versions/2")
    ),
    "/v2/models/batch/versions/1/ready",
    "/v2/models/batch/versions/x",
    "/v2/models/batch/versions/9/stats",
    "/v2/models/nosuch/stats",
    "/v2/models/batch/versions/1/config",
    "/v2/models/batch/versions/99999999999999999999",
    "/v2/models/labelled",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/nosuch/trace/setting",
    "/v2/systemsharedmemory/status",
    "/v2/cudasharedmemory/status",
    "/v2/systemsharedmemory/region/x/status",
    "/v2/repository/index",
    "/v2/models/batch/infer",
    "/v2/health/live?x=1",
    "//v2",
)


def plain_cases() -> Iterator[Case]:
    for path in PATHS:
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD"):
            yield Case(f"{method} {path}", method, path, {}, b"")
    yield Case("index ready", "POST", "/v2/repository/index", {}, b'{"ready":true}')
    yield Case("index wrong", "POST", "/v2/repository/index", {}, b'{"ready":1}')
    yield Case("load", "POST", "/v2/repository/models/batch/load", {}, b"")
    yield Case("unload", "POST", "/v2/repository/models/batch/unload", {}, b"")
    yield from settings_cases()


def settings_cases() -> Iterator[Case]:
    for body in (
        b'{"log_verbose_level":"x"}', b'{"log_info":1}', b'{"log_format":"x"}', b'{"log_file":"y"}', b'{"nosuch":1}', b"{", b"{}",
    ):  # fmt: skip
        yield Case(f"logging {body!r}", "POST", "/v2/logging", {}, body)
    for body in (
        b'{"trace_rate":"x"}',
        b'{"trace_level":["OFF","TENSORS"]}',
        b'{"trace_count":"-2"}',
        b'{"trace_file":"x"}',
        b'{"x":"1"}',
        b"{}",
    ):
        yield Case(f"trace {body!r}", "POST", "/v2/trace/setting", {}, body)


def data_cases() -> Iterator[Case]:
    for name, values in VALUES.items():
        model, wire = f"copy_{name}", WIRE[name]
        yield infer(model, [tensor("IN", wire, [len(values)], values)])
        yield infer(model, [tensor("IN", wire, [1, len(values)], [values])])
        yield infer(model, [tensor("IN", wire, [len(values)], [[v] for v in values])])
        yield infer(model, [tensor("IN", wire, [len(values)], values)], outputs=[{"name": "OUT"}], id="42")
        for wrong in ("x", 1, -1, 1.5, True, None, {}, [], 300, 1e400, 1e39):
            yield infer(model, [tensor("IN", wire, [1], [wrong])], name=f"{model} element {wrong!r}")
        yield infer(model, [tensor("IN", wire, [0], [])])
        yield infer(model, [tensor("IN", wire, [len(values) + 1], values)])
        yield infer(model, [tensor("IN", wire, [len(values) - 1], values)])
        yield infer(model, [tensor("IN", "INT7", [1], [1])])
        yield infer(model, [tensor("IN", "FP16", [1], [1])])
        yield infer(model, [tensor("IN", "BF16", [1], [1])])
    for literal in ("NaN", "Infinity", "-Infinity", "Inf"):
        body = '{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[' + literal + "]}]}"
        yield Case(f"literal {literal}", "POST", "/v2/models/copy_fp32/infer", {}, body.encode())
    deep = "[" * 150 + "1" + "]" * 150
    body = '{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":' + deep + "}]}"
    yield Case("deep data", "POST", "/v2/models/copy_int32/infer", {}, body.encode())


def shape_cases() -> Iterator[Case]:
    one = [0.5, 1.5, 2.5]
    for shape, data in (
        ([1, 3], one),
        ([2, 3], one * 2),
        ([4, 3], one * 4),
        ([5, 3], one * 5),
        ([3], one),
        ([0, 3], []),
        ([1, 2], one[:2]),
    ):
        yield infer("batch", [tensor("IN", "FP32", shape, data)])
    for shape in (
        [1, 3, 1],
        [1, -1],
        [-1, 3],
        [1],
        [],
        [1, 3.5],
        ["1", 3],
    ):
        yield infer("batch", [tensor("IN", "FP32", shape, one)])  # type: ignore[arg-type]
    for shape, data in (
        ([1, 2, 2], [1, 2, 3, 4]),
        ([2, 2, 1], [1, 2, 3, 4]),
        ([1, 3, 1], [1, 2, 3]),
        ([2, 2], [1, 2, 3, 4]),
    ):
        yield infer("matrix", [tensor("IN", "INT32", shape, data)])
    in0, in1 = tensor("IN0", "INT32", [2], [1, 2]), tensor("IN1", "BYTES", [1], ["a"])
    for model in ("two", "optional"):
        for inputs in (
            [in0, in1],
            [in1, in0],
            [in0],
            [in1],
            [],
            [in0, in0],
            [in0, in1, tensor("IN2", "INT32", [1], [1])],
        ):
            yield infer(model, inputs)
        yield infer(model, [in0, in1], outputs=[{"name": "OUT1"}])
        yield infer(model, [in0, in1], outputs=[{"name": "OUT1"}, {"name": "OUT0"}])
        yield infer(model, [in0, in1], outputs=[{"name": "OUT1"}, {"name": "OUT1"}])
        yield infer(model, [in0, in1], outputs=[{"name": "NO"}])
        yield infer(model, [in0, in1], outputs=[])
        yield infer(model, [in0, in1], outputs=[{}])
    yield infer("two", [in0, in1], version="1")
    yield infer("two", [in0, in1], version="2")
    yield infer("two", [in0, in1], version="0")
    yield infer("nosuch", [in0])
    yield infer("stream", [tensor("IN", "INT32", [1], [2])])
    for mode in range(9):
        yield infer("failing", [tensor("IN", "INT32", [1], [mode])])


def binary_cases() -> Iterator[Case]:
    values = struct.pack("<3f", 0.5, 1.5, 2.5)

    def binary(name: str, head: dict[str, object], tail: bytes, length: str | None = None, **headers: str) -> Case:
        text = json.dumps(head).encode()
        headers = {"Inference-Header-Content-Length": str(len(text)) if length is None else length} | headers
        return Case(f"binary {name}", "POST", "/v2/models/batch/infer", headers, text + tail)

    def given(size: int, **extra: object) -> dict[str, object]:
        return {"inputs": [tensor("IN", "FP32", [1, 3], binary_data_size=size)], **extra}

    all_binary: dict[str, object] = {"parameters": {"binary_data_output": True}}
    yield binary("json answer", given(12), values)
    yield binary("binary answer", given(12, **all_binary), values)
    yield binary("listed json", given(12, outputs=[{"name": "OUT"}], **all_binary), values)
    yield binary("listed binary", given(12, outputs=[{"name": "OUT", "parameters": {"binary_data": True}}]), values)
    yield binary("short", given(12), values[:8])
    yield binary("long", given(12), values + b"x")
    yield binary("wrong size", given(8), values[:8])
    yield binary("negative size", given(-1), values)
    yield binary("header too long", given(12), values, length="100000")
    yield binary("header negative", given(12), values, length="-1")
    yield binary("header text", given(12), values, length="abc")
    yield binary("header zero", given(12), values, length="0")
    yield binary("both", {"inputs": [tensor("IN", "FP32", [1, 3], [1, 2, 3], binary_data_size=12)]}, values)
    yield binary("neither", {"inputs": [tensor("IN", "FP32", [1, 3])]}, b"")
    yield binary(
        "shared memory",
        {"inputs": [tensor("IN", "FP32", [1, 3], shared_memory_region="r", shared_memory_byte_size=12)]},
        b"",
    )
    yield from raw_cases(values)
    yield from encoding_cases()
    yield from binary_text_cases()


def raw_cases(values: bytes) -> Iterator[Case]:
    """The tensor alone, without a JSON header before it."""
    yield Case("raw", "POST", "/v2/models/batch/infer", {"Inference-Header-Content-Length": "0"}, values)
    yield Case("raw wrong", "POST", "/v2/models/batch/infer", {"Inference-Header-Content-Length": "0"}, values[:5])
    yield Case("raw two", "POST", "/v2/models/two/infer", {"Inference-Header-Content-Length": "0"}, values)


def encoding_cases() -> Iterator[Case]:
    plain = infer("batch", [tensor("IN", "FP32", [1, 3], [1, 2, 3])]).body
    for encoding, body in (
        ("gzip", gzip.compress(plain)),
        ("deflate", zlib.compress(plain)),
        ("gzip", plain),
        ("br", plain),
        ("identity", plain),
    ):
        yield Case(f"encoded {encoding}", "POST", "/v2/models/batch/infer", {"Content-Encoding": encoding}, body)
    for accept in ("gzip", "deflate", "gzip;q=0.2, deflate;q=0.8", "br", "identity", "*"):
        yield Case(f"accept {accept}", "POST", "/v2/models/batch/infer", {"Accept-Encoding": accept}, plain)


def binary_text_cases() -> Iterator[Case]:
    text = struct.pack("<I", 5) + b"hello"
    for name, tail in (
        ("text", text),
        ("text short", text[:6]),
        ("text two", text + text),
        ("text length", text[:2]),
        ("text extra", text + b"x"),
    ):
        head = {"inputs": [tensor("IN", "BYTES", [1], binary_data_size=len(tail))]}
        raw = json.dumps(head).encode()
        yield Case(
            f"binary {name}",
            "POST",
            "/v2/models/copy_string/infer",
            {"Inference-Header-Content-Length": str(len(raw))},
            raw + tail,
        )


def parameter_cases() -> Iterator[Case]:
    one = [tensor("IN", "INT32", [1], [1])]
    for parameters in (
        {"a": 1}, {"a": "x", "b": True, "c": 1.5}, {"a": None}, {"a": []}, {"a": {}}, {"triton_x": 1}, {"priority": 1}, {"priority": -1},
        {"timeout": 5}, {"timeout": "x"}, {"sequence_id": 5}, {"sequence_id": "s"}, {"sequence_start": 1}, {"sequence_start": True},
        {"binary_data_output": 1}, {"a": 9223372036854775808}, {"headers": "x"},
    ):  # fmt: skip
        yield infer("parameters", one, parameters=parameters)
    four = [tensor("IN", "FP32", [4], [0.1, 3.5, -1, 2])]
    for classes in (1, 2, 4, 9, 0, -1, "x"):
        yield infer("labelled", four, outputs=[{"name": "OUT", "parameters": {"classification": classes}}])
    yield infer(
        "copy_int8", [tensor("IN", "INT8", [2], [1, 2])], outputs=[{"name": "OUT", "parameters": {"classification": 1}}]
    )
    yield infer(
        "copy_bool", [tensor("IN", "BOOL", [1], [True])], outputs=[{"name": "OUT", "parameters": {"classification": 1}}]
    )
    yield infer(
        "batch",
        [tensor("IN", "FP32", [2, 3], [1, 2, 3, 6, 5, 4])],
        outputs=[{"name": "OUT", "parameters": {"classification": 2}}],
    )


def generate_cases() -> Iterator[Case]:
    bodies = [
        ("copy_string", {"IN": "x"}), ("copy_string", {"IN": ["x", "y"]}), ("copy_string", {"IN": []}), ("copy_string", {"IN": 1}),
        ("copy_string", {}), ("copy_string", {"IN": "x", "id": "7", "a": 1}), ("copy_string", {"IN": "x", "parameters": {"a": 1}}),
        ("copy_string", {"IN": "x", "parameters": 1}), ("copy_string", {"IN": "x", "b": []}), ("batch", {"IN": [1, 2, 3]}),
        ("batch", {"IN": [1, 2, 3, 4, 5, 6]}), ("batch", {"IN": [1, 2]}), ("batch", {"IN": 1}), ("batch", {"IN": [[1, 2, 3]]}),
        ("parameters", {"IN": 1, "b": True, "s": "t", "f": 0.5}), ("parameters", {"IN": 1, "id": "x"}), ("parameters", {"IN": "x"}),
        ("stream", {"IN": 0}), ("stream", {"IN": 1}), ("stream", {"IN": 3}), ("nosuch", {"IN": 3}), ("failing", {"IN": 0}),
        ("failing", {"IN": 1}), ("failing", {"IN": 6}), ("copy_fp32", {"IN": 1}), ("copy_fp16", {"IN": 1}), ("two", {"IN0": [1, 2], "IN1": "x"}),
        ("two", {"IN0": [1, 2]}), ("labelled", {"IN": [1, 2, 3, 4]}), ("copy_uint8", {"IN": 300}), ("copy_bool", {"IN": 1}),
    ]  # fmt: skip
    for endpoint in ("generate", "generate_stream"):
        for model, body in bodies:
            yield Case(
                f"{endpoint} {model} {body}", "POST", f"/v2/models/{model}/{endpoint}", {}, json.dumps(body).encode()
            )
        twice = b'{"IN":"x","IN":"y"}'
        yield Case(f"{endpoint} duplicate", "POST", f"/v2/models/copy_string/{endpoint}", {}, twice)
        yield Case(
            f"{endpoint} gzip", "POST", f"/v2/models/copy_string/{endpoint}", {"Content-Encoding": "gzip"}, twice
        )
        yield Case(f"{endpoint} versioned", "POST", f"/v2/models/copy_string/versions/1/{endpoint}", {}, b'{"IN":"x"}')
        for body in MALFORMED:
            yield Case(f"{endpoint} {body[:30]!r}", "POST", f"/v2/models/copy_string/{endpoint}", {}, body)


def malformed_cases() -> Iterator[Case]:
    for body in MALFORMED:
        yield Case(f"malformed {body[:40]!r}", "POST", "/v2/models/copy_int32/infer", {}, body)


def random_cases(random_source: random.Random, count: int) -> Iterator[Case]:
    """Well-formed requests with one thing changed at random."""
    for number in range(count):
        name = random_source.choice(sorted(VALUES))
        values = [random_source.choice(VALUES[name]) for _ in range(random_source.randint(0, 4))]
        entry = tensor("IN", WIRE[name], [len(values)], values)
        whole: dict[str, object] = {"inputs": [entry]}
        target = random_source.choice([entry, whole])
        key = random_source.choice(sorted(target))
        change = random_source.randint(0, 3)
        if change == 0:
            target.pop(key)
        elif change == 1:
            target[key] = random_source.choice([None, 1, -1, "x", [], {}, True, [None], [1, "x"], 1.5])
        elif change == 2:
            target[key + "2"] = target.pop(key)
        yield Case(
            f"random {number} {json.dumps(whole)[:120]}",
            "POST",
            f"/v2/models/copy_{name}/infer",
            {},
            json.dumps(whole).encode(),
        )
