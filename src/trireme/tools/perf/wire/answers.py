"""Answers of whatever protocol as outputs by their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import encode_bytes
from trireme.proto import service_pb2
from trireme.tools.perf.wire import grpc_requests, http_requests, tensorflow_requests

HTTP, GRPC, GRPC_STREAM, EVENTS, TEXT = "http", "grpc", "grpc_stream", "events", "text"
TENSORFLOW, MESSAGES = "tensorflow", "messages"

Outputs = dict[str, tuple[str, Any]]
"""By name: datatype, and wire bytes or a list of values."""


def outputs_of(kind: str, body: Any) -> Outputs:
    """The outputs of a kept answer."""
    if kind == HTTP:
        json_length, content = body
        return http_requests.response_outputs(content, json_length)
    if kind == GRPC:
        return grpc_requests.response_outputs(service_pb2.ModelInferResponse.FromString(body))
    if kind == TENSORFLOW:
        return tensorflow_requests.response_outputs(body)
    answer = service_pb2.ModelStreamInferResponse.FromString(body)
    return grpc_requests.response_outputs(answer.infer_response)


def http_fault(json_length: int | None, body: bytes) -> str:
    """What keeps an answer with status 200 from being one of the v2 protocol, in words; empty where nothing does."""
    document = body if json_length is None else body[:json_length]
    if not document:
        return "failed to parse the answer's JSON: The document is empty."
    try:
        read = http_requests.read_answer(document)
    except (ValueError, RecursionError) as error:
        return f"failed to parse the answer's JSON: {error}"
    outputs = read.get("outputs") if isinstance(read, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "name" in one for one in outputs):
        return "the answer is no inference response: its JSON has no list of outputs with names"
    sizes = [one["parameters"].get("binary_data_size", 0) for one in outputs if isinstance(one.get("parameters"), dict)]
    if not all(isinstance(size, int) for size in sizes) or sum(sizes) > len(body) - len(document):
        return f"the answer's outputs are larger than the {len(body) - len(document)} bytes behind its JSON"
    return ""


def response_text(kind: str, body: Any) -> str:
    """An answer that is text as such: an event of a stream, or a whole document."""
    content = body if kind == EVENTS else body[1]
    return bytes(content).decode("utf-8", "replace")


def mismatch(outputs: Outputs, expected: dict[str, bytes]) -> str | None:
    """The first output that is not as it must be, in words."""
    for name, wanted in expected.items():
        if name not in outputs:
            return f"Output doesn't match expected output: the answer has no '{name}'"
        datatype, value = outputs[name]
        if not isinstance(value, (bytes, bytearray)):
            value = _wire_bytes(datatype, value)
        if bytes(value) != wanted:
            return f"Output doesn't match expected output: '{name}' differs"
    return None


def _wire_bytes(datatype: str, values: Any) -> bytes:
    if datatype == BYTES:
        return encode_bytes(values)
    return np.array(values).astype(NUMPY_DTYPE[datatype]).tobytes()
