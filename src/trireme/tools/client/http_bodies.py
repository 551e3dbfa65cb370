"""Requests and answers as HTTP bodies: JSON with binary tensors behind it, events, and the flat form of generate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import decode_bytes, element_count, encode_bytes
from trireme.core.tensor import Tensor
from trireme.tools.client.errors import AnswerError, InputError
from trireme.tools.client.messages import InferAnswer, InferCall

_BINARY_SIZE = "binary_data_size"


def encode_call(call: InferCall, is_binary_answer: bool) -> tuple[bytes, int]:
    """The body, and the length of its JSON part."""
    document: dict[str, Any] = {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "parameters": {_BINARY_SIZE: len(tensor.data)},
            }
            for tensor in call.inputs
        ]
    }
    parameters = dict(call.parameters)
    if call.outputs:
        document["outputs"] = [_output_entry(call, name, is_binary_answer) for name in call.outputs]
    elif is_binary_answer:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    if call.request_id:
        document["id"] = call.request_id
    text = json.dumps(document).encode()
    return b"".join((text, *(tensor.data for tensor in call.inputs))), len(text)


def _output_entry(call: InferCall, name: str, is_binary: bool) -> dict[str, Any]:
    parameters: dict[str, Any] = {"binary_data": is_binary}
    if name in call.class_counts:
        parameters["classification"] = call.class_counts[name]
    return {"name": name, "parameters": parameters}


def decode_answer(content: bytes, json_length: int | None) -> InferAnswer:
    """An answer of infer; raises AnswerError where it is cut short, or something else."""
    with _unreadable_told():
        return _answer_of(json.loads(content[:json_length]), content, json_length)


@contextmanager
def _unreadable_told() -> Iterator[None]:
    """What decoders make of an answer that is none is an AnswerError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise AnswerError(f"the answer cannot be read: {type(error).__name__}: {error}") from None


def _answer_of(document: dict[str, Any], content: bytes, json_length: int | None) -> InferAnswer:
    position = json_length if json_length is not None else len(content)
    outputs = []
    for entry in document.get("outputs", ()):
        size = entry.get("parameters", {}).get(_BINARY_SIZE)
        if size is None:
            outputs.append(_from_json(entry))
            continue
        part = memoryview(content)[position : position + size]
        if len(part) != size:
            raise AnswerError(f"output '{entry['name']}' is cut short")
        data = bytes(part) if entry["datatype"] == BYTES else part  # numbers stay where they are
        outputs.append(Tensor(entry["name"], entry["datatype"], tuple(entry["shape"]), data))
        position += size
    return InferAnswer(
        document.get("model_name", ""),
        document.get("model_version", ""),
        tuple(outputs),
        dict(document.get("parameters", {})),
    )


def event_answer(event: bytes) -> InferAnswer:
    """An event of a stream of infer answers; raises AnswerError for what is told in place of one."""
    with _unreadable_told():
        document = json.loads(event)
        _raise_told(document)
        return _answer_of(document, event, None)


def encode_flat(call: InferCall) -> bytes:
    """The request as generate takes it; raises InputError for a tensor that it cannot carry."""
    body: dict[str, Any] = dict(call.parameters)
    for tensor in call.inputs:
        if tensor.datatype not in NUMPY_DTYPE and tensor.datatype != BYTES:
            raise InputError(f"generate_stream carries no {tensor.datatype}, as input '{tensor.name}' is; use --grpc")
        values = (
            [element.decode("utf-8", "replace") for element in decode_bytes(tensor.data)]
            if tensor.datatype == BYTES
            else tensor.to_numpy().ravel().tolist()
        )
        body[tensor.name] = values[0] if len(values) == 1 else values
    return json.dumps(body).encode()


def decode_flat(event: bytes, call: InferCall) -> InferAnswer:
    """An event of generate; it has no datatypes, so text is BYTES and numbers are what numpy makes of them."""
    with _unreadable_told():
        document = json.loads(event)
        _raise_told(document)
        return _flat_answer(document, call)


def _flat_answer(document: dict[str, Any], call: InferCall) -> InferAnswer:
    told = ("model_name", "model_version", "id", "sequence_id", "sequence_start", "sequence_end")
    outputs = []
    for name, value in document.items():
        if name in told or (call.outputs and name not in call.outputs):
            continue
        array = np.atleast_1d(np.array(value))
        outputs.append(Tensor.from_numpy(name, array.astype(np.object_) if array.dtype.kind in "US" else array))
    return InferAnswer(document.get("model_name", ""), document.get("model_version", ""), tuple(outputs))


def _raise_told(document: dict[str, Any]) -> None:
    if "error" in document:
        raise AnswerError(str(document["error"]))


def _from_json(entry: dict[str, Any]) -> Tensor:
    shape, datatype, values = tuple(entry["shape"]), entry["datatype"], entry.get("data", [])
    if datatype == BYTES:
        return Tensor(entry["name"], datatype, shape, encode_bytes(_leaves(values)))
    array = np.array(values).astype(NUMPY_DTYPE[datatype])
    if array.size != element_count(shape):
        raise AnswerError(f"output '{entry['name']}' has {array.size} elements, and a shape for {element_count(shape)}")
    return Tensor(entry["name"], datatype, shape, array.tobytes())


def _leaves(values: Any) -> list[Any]:
    return [leaf for value in values for leaf in _leaves(value)] if isinstance(values, list) else [values]
