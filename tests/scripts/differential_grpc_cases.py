"""gRPC calls whose answers are compared: each a name, an RPC, serialised messages and metadata."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
from differential_grpc_control import Call, plain_calls, setting_calls
from tritonclient.grpc import service_pb2 as pb

Parameters = dict[str, dict[str, object]]

WIRE = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "fp16": "FP16",
    "fp32": "FP32",
    "fp64": "FP64",
    "string": "BYTES",
}
SIZES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "fp16": 2, "uint32": 4, "int32": 4, "fp32": 4}
CONTENTS: dict[str, list[Any]] = {
    "bool_contents": [True, False],
    "int_contents": [1, -2],
    "int64_contents": [3, -4],
    "uint_contents": [5, 300],
    "uint64_contents": [7, 2**64 - 1],
    "fp32_contents": [0.5, -1.5],
    "fp64_contents": [0.25, 1e200],
    "bytes_contents": [b"one", b""],
}
PARAMETERS: tuple[Parameters, ...] = (
    {"a": {"int64_param": 1}},
    {"a": {"string_param": "x"}},
    {"a": {"bool_param": True}},
    {"a": {"double_param": 1.5}},
    {"a": {"uint64_param": 1}},
    {"a": {"uint64_param": 2**64 - 1}},
    {"a": {}},
    {"a": {"double_param": float("nan")}},
    {"a": {"string_param": 'quote " backslash \\ newline \n ünï'}},
    {"": {"int64_param": 1}},
    {"triton_x": {"int64_param": 1}},
    {"triton_final_response": {"bool_param": True}},
    {"triton_enable_empty_final_response": {"bool_param": True}},
    {"triton_enable_empty_final_response": {"int64_param": 1}},
    {"priority": {"int64_param": 1}},
    {"priority": {"int64_param": -1}},
    {"priority": {"uint64_param": 2}},
    {"priority": {"string_param": "x"}},
    {"timeout": {"int64_param": 5}},
    {"timeout": {"uint64_param": 5}},
    {"timeout": {"string_param": "5"}},
    {"sequence_id": {"int64_param": 5}},
    {"sequence_id": {"uint64_param": 5}},
    {"sequence_id": {"string_param": "s" * 129}},
    {"sequence_id": {"bool_param": True}},
    {"sequence_start": {"bool_param": True}},
    {"sequence_start": {"int64_param": 1}},
    {"sequence_end": {"bool_param": True}},
    {"sequence_end": {"string_param": "x"}},
    {"binary_data_output": {"bool_param": True}},
    {"headers": {"string_param": "x"}},
)
SHARED_MEMORY: tuple[Parameters, ...] = (
    {"shared_memory_region": {"string_param": "r"}},
    {"shared_memory_region": {"int64_param": 1}},
    {"shared_memory_offset": {"int64_param": 1}},
    {"shared_memory_byte_size": {"int64_param": 1}},
    {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"string_param": "1"}},
    {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 4}},
    {
        "shared_memory_region": {"string_param": "r"},
        "shared_memory_byte_size": {"int64_param": 4},
        "shared_memory_offset": {"bool_param": True},
    },
)


def tensor(
    name: str, datatype: str, shape: list[int], parameters: Parameters | None = None, **contents: list[Any]
) -> Any:
    entry = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    if contents:
        entry.contents.CopyFrom(pb.InferTensorContents(**contents))
    _fill(entry.parameters, parameters)
    return entry


def output(name: str, parameters: Parameters | None = None) -> Any:
    entry = pb.ModelInferRequest.InferRequestedOutputTensor(name=name)
    _fill(entry.parameters, parameters)
    return entry


def _fill(target: Any, parameters: Parameters | None) -> None:
    for key, value in (parameters or {}).items():
        target[key].CopyFrom(pb.InferParameter(**value))


def request(
    model: str, inputs: list[Any], raw: Sequence[bytes] = (), parameters: Parameters | None = None, **fields: Any
) -> bytes:
    message = pb.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raw, **fields)
    _fill(message.parameters, parameters)
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def infer(name: str, message: bytes) -> Iterator[Call]:
    """The request alone and as the only one of a stream, with errors in messages and as status."""
    yield Call(f"infer {name}", "ModelInfer", [message])
    yield Call(f"stream {name}", "ModelStreamInfer", [message])
    yield Call(f"status stream {name}", "ModelStreamInfer", [message], (("triton_grpc_error", "true"),))


def int32(model: str, value: int, **fields: Any) -> bytes:
    return request(model, [tensor("IN", "INT32", [1])], [struct.pack("<i", value)], **fields)


def all_calls(seed: int) -> Iterator[Call]:
    yield from plain_calls()
    yield from setting_calls()
    yield from data_calls()
    yield from content_calls()
    yield from shape_calls()
    yield from parameter_calls()
    yield from output_calls()
    yield from stream_calls()
    yield from malformed_calls(random.Random(seed))
    yield Call("ModelStatistics of all", "ModelStatistics", [b""])
    # Last, for Triton 2.51 does not always survive an error that ends a stream with other requests in it.
    messages = [int32("copy_int32", 1), int32("failing", 1), int32("copy_int32", 1)]
    yield Call("status streamed good bad good", "ModelStreamInfer", messages, (("triton_grpc_error", "true"),))


def data_calls() -> Iterator[Call]:
    for name, wire in WIRE.items():
        model = f"copy_{name}"
        if name == "string":
            data = b"".join(struct.pack("<I", len(text)) + text for text in (b"hello", b"", "ünï".encode(), b"\0\xff"))
        else:
            data = np.arange(4 * SIZES.get(name, 8), dtype=np.uint8).tobytes()
            data = bytes(byte & 1 for byte in data) if name == "bool" else data
        for shape, raw in (
            ([4], [data]),
            ([4, 1], [data]),
            ([5], [data]),
            ([3], [data]),
            ([0], [b""]),
            ([0], [data]),
            ([4], [data[:-1]]),
            ([4], [data + b"x"]),
            ([4], [b""]),
            ([4], []),
            ([4], [data, data]),
            ([-1], [data]),
            ([], [data]),
            ([2**62, 8], [data]),
        ):
            message = request(model, [tensor("IN", wire, shape)], raw)
            yield from infer(f"{model} {shape} {list(map(len, raw))}", message)
        for wrong in ("", "INT7", "fp32", "FP32" if wire != "FP32" else "FP64", "BF16", "STRING"):
            yield from infer(f"{model} as {wrong!r}", request(model, [tensor("IN", wrong, [4])], [data], id="7"))
    large = bytes(5_000_000)
    message = request("copy_uint8", [tensor("IN", "UINT8", [len(large)])], [large])
    for compression in grpc.Compression:
        yield Call(f"infer large {compression.name}", "ModelInfer", [message], (), compression)


def content_calls() -> Iterator[Call]:
    for name, wire in WIRE.items():
        model = f"copy_{name}"
        for field, values in CONTENTS.items():
            yield from infer(f"{model} {field}", request(model, [tensor("IN", wire, [2], None, **{field: values})]))
    pair = {"fp32_contents": [1.0, 2.0]}
    model = "copy_fp32"
    for label, message in {
        "too many": request(model, [tensor("IN", "FP32", [1], None, **pair)]),
        "too few": request(model, [tensor("IN", "FP32", [3], None, **pair)]),
        "two fields": request(model, [tensor("IN", "FP32", [2], None, int_contents=[1], **pair)]),
        "raw too": request(model, [tensor("IN", "FP32", [2], None, **pair)], [bytes(8)]),
        "empty": request(model, [tensor("IN", "FP32", [2], None, fp32_contents=[])]),
        "empty for nothing": request(model, [tensor("IN", "FP32", [0], None, fp32_contents=[])]),
        "none for nothing": request(model, [tensor("IN", "FP32", [0])]),
        "wrong datatype": request(model, [tensor("IN", "INT7", [2], None, **pair)]),
    }.items():
        yield from infer(f"contents {label}", message)
    one, word = tensor("IN0", "INT32", [2], None, int_contents=[1, 2]), tensor("IN1", "BYTES", [1])
    yield from infer("two mixed", request("two", [one, word], [struct.pack("<I", 1) + b"x"]))
    yield from infer("two half", request("two", [one, word]))


def shape_calls() -> Iterator[Call]:
    row = struct.pack("<3f", 0.5, 1.5, 2.5)
    for shape, count in (([1, 3], 1), ([2, 3], 2), ([4, 3], 4), ([5, 3], 5), ([3], 1), ([0, 3], 0), ([1, 2], 1), ([], 1),
                         ([1, 3, 1], 1), ([1, -1], 1), ([-1, 3], 1), ([1], 1), ([-2, 3], 1)):  # fmt: skip
        yield from infer(f"batch {shape}", request("batch", [tensor("IN", "FP32", shape)], [row * count]))
        yield from infer(f"batch {shape} id", request("batch", [tensor("IN", "FP32", shape)], [row * count], id="ünï"))
    for shape in ([1, 2, 2], [2, 2, 1], [1, 3, 1], [2, 2]):
        raw = bytes(4 * int(np.prod(shape)))
        yield from infer(f"matrix {shape}", request("matrix", [tensor("IN", "INT32", shape)], [raw]))
    in0, in1 = tensor("IN0", "INT32", [2]), tensor("IN1", "BYTES", [1])
    raw0, raw1 = struct.pack("<2i", 1, 2), struct.pack("<I", 1) + b"a"
    for model in ("two", "optional"):
        for inputs, raws in (
            ([in0, in1], [raw0, raw1]),
            ([in1, in0], [raw1, raw0]),
            ([in0, in1], [raw1, raw0]),
            ([in0], [raw0]),
            ([in1], [raw1]),
            ([], []),
            ([], [raw0]),
            ([in0, in0], [raw0, raw0]),
            ([in0, in1, in0], [raw0, raw1, raw0]),
            ([in0, in1, tensor("IN2", "INT32", [1])], [raw0, raw1, bytes(4)]),
            ([in0, tensor("", "INT32", [1])], [raw0, bytes(4)]),
        ):
            label = f"{model} {[entry.name for entry in inputs]} {list(map(len, raws))}"
            yield from infer(label, request(model, inputs, raws))
            yield from infer(f"{label} id", request(model, inputs, raws, id="42"))
        for names in (["OUT1"], ["OUT1", "OUT0"], ["OUT1", "OUT1"], ["NO"], [""], ["OUT0", "NO"]):
            message = request(model, [in0, in1], [raw0, raw1], outputs=[output(name) for name in names])
            yield from infer(f"{model} outputs {names}", message)
    for version in ("1", "2", "0", "-1", "x", "1x", "99999999999999999999"):
        yield from infer(f"version {version}", int32("copy_int32", 5, model_version=version))
    yield from infer("no model", int32("nosuch", 5, id="9"))
    yield from infer("nameless model", int32("", 5))
    for mode in range(9):
        yield from infer(f"failing {mode}", int32("failing", mode))
        yield from infer(f"failing {mode} id", int32("failing", mode, id="f", model_version="1"))


def parameter_calls() -> Iterator[Call]:
    for parameters in PARAMETERS:
        yield from infer(f"parameters {parameters}", int32("parameters", 1, parameters=parameters))
        yield from infer(f"parameters id {parameters}", int32("parameters", 1, parameters=parameters, id="p"))
    for parameters in SHARED_MEMORY:
        bare = tensor("IN", "INT32", [1], parameters)
        yield from infer(f"shared memory {parameters}", request("copy_int32", [bare]))
        yield from infer(f"shared memory raw {parameters}", request("copy_int32", [bare], [bytes(4)]))
        typed = tensor("IN", "INT32", [1], parameters, int_contents=[1])
        yield from infer(f"shared memory contents {parameters}", request("copy_int32", [typed]))
        yield from infer(f"shared output {parameters}", int32("copy_int32", 1, outputs=[output("OUT", parameters)]))
    other = tensor("IN", "INT32", [1], {"x": {"int64_param": 1}, "binary_data_size": {"int64_param": 4}})
    yield from infer("input parameters", request("copy_int32", [other], [bytes(4)]))


def output_calls() -> Iterator[Call]:
    four = struct.pack("<4f", 0.1, 3.5, -1, 2)
    values: tuple[dict[str, object], ...] = (
        *({"int64_param": count} for count in (1, 2, 4, 9, 0, -1, 2**40)),
        {"uint64_param": 1},
        {"string_param": "1"},
        {},
    )
    for value in values:
        wanted = [output("OUT", {"classification": value})]
        message = request("labelled", [tensor("IN", "FP32", [4])], [four], outputs=wanted)
        yield from infer(f"classification {value}", message)
    one: Parameters = {"classification": {"int64_param": 1}}
    for name, wire in WIRE.items():
        if name == "string":  # classes of strings end Triton before 2.60
            continue
        raw = bytes(SIZES.get(name, 8))
        message = request(f"copy_{name}", [tensor("IN", wire, [1])], [raw], outputs=[output("OUT", one)])
        yield from infer(f"classification of {wire}", message)
    six = struct.pack("<6f", 1, 2, 3, 6, 5, 4)
    wanted = [output("OUT", {"classification": {"int64_param": 2}})]
    yield from infer("classified batch", request("batch", [tensor("IN", "FP32", [2, 3])], [six], outputs=wanted))
    empty = request("copy_fp32", [tensor("IN", "FP32", [0])], [b""], outputs=[output("OUT", one)])
    yield from infer("classified nothing", empty)
    both = {**one, **SHARED_MEMORY[5]}
    yield from infer("classified shared memory", int32("copy_int32", 1, outputs=[output("OUT", both)]))


def stream_calls() -> Iterator[Call]:
    wants_end: Parameters = {"triton_enable_empty_final_response": {"bool_param": True}}
    for count in (0, 1, 3, 40):
        for parameters in ({}, wants_end):
            for version in ("", "1"):
                message = int32("stream", count, id=f"s{count}", model_version=version, parameters=parameters)
                yield from infer(f"decoupled {count} {bool(parameters)} {version!r}", message)
    good, bad, unknown = int32("copy_int32", 1, id="g"), int32("failing", 1, id="b"), int32("nosuch", 1, id="u")
    short = request("copy_int32", [tensor("IN", "INT32", [2])], [bytes(4)], id="short")
    nothing = request("failing", [tensor("IN", "INT32", [1])], [struct.pack("<i", 6)], parameters=wants_end)
    for label, messages in {
        "empty": [],
        "many": [int32("copy_int32", n, id=str(n)) for n in range(20)],
        "good bad good": [good, bad, good],
        "good unknown good": [good, unknown, good],
        "good short good": [good, short, good],
        "ordered models": [int32("copy_int32", 1, id="1"), int32("failing", 8, id="2"), int32("copy_int32", 3, id="3")],
        "nothing": [nothing],
        "garbage": [good, b"\xff\xff", good],
    }.items():
        yield Call(f"streamed {label}", "ModelStreamInfer", messages)
        if bad not in messages:
            yield Call(f"status streamed {label}", "ModelStreamInfer", messages, (("triton_grpc_error", "true"),))
        yield Call(f"false streamed {label}", "ModelStreamInfer", messages, (("triton_grpc_error", "false"),))


def malformed_calls(source: random.Random) -> Iterator[Call]:
    good = request("two", [tensor("IN0", "INT32", [2]), tensor("IN1", "BYTES", [1])],
                   [bytes(8), struct.pack("<I", 1) + b"a"], parameters=PARAMETERS[1], id="m")  # fmt: skip
    for message in (
        b"",
        b"\x00",
        b"\xff",
        b"\x0a\x05ab",
        good[:-1],
        good + good,
        good + b"\x78\x01",
        b"\x0a\x02\xff\xfe",
    ):
        yield from infer(f"bytes {message[:20]!r} {len(message)}", message)
    for number in range(200):
        damaged = bytearray(good)
        for _ in range(source.randint(1, 3)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        yield Call(f"damaged {number} {bytes(damaged)!r}", "ModelInfer", [bytes(damaged)])
