"""Inference requests as HTTP bytes, made once and sent again and again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from trireme.core.datatype import BYTES
from trireme.tools.perf.data.batches import RegionPart, RequestContent, RequestInput
from trireme.tools.perf.data.tensors import InputTensor

Headers = Iterable[tuple[str, str]]


def post_head(path: str, authority: str, headers: Headers) -> bytes:
    """A request's head up to the fields that tell the body's length."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {authority}", *(f"{name}: {value}" for name, value in headers)]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1", "replace")


def infer_path(model: str, version: str) -> str:
    """The path of a model's inference."""
    versions = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(model, safe='')}{versions}/infer"


class HttpInferForm:
    """One request; those of sequences differ in their parameters."""

    __slots__ = ("_binary", "_fields", "_head", "plain")

    def __init__(
        self,
        head: bytes,
        content: RequestContent,
        outputs: Mapping[str, RegionPart | None],
        *,
        uses_json_inputs: bool,
        uses_json_outputs: bool,
    ) -> None:
        self._head = head
        self._binary = b"" if uses_json_inputs else b"".join(i.data for i in content.inputs if i.place is None)
        self._fields: dict[str, Any] = {
            "inputs": [_describe(one, uses_json_inputs) for one in content.inputs],
            "outputs": [_output_entry(name, place, uses_json_outputs) for name, place in outputs.items()],
        }
        self.plain = self._encode(self._fields)

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """The same as a part of a sequence."""
        parameters = {"sequence_id": sequence_id, "sequence_start": is_start, "sequence_end": is_end}
        return self._encode({**self._fields, "parameters": parameters})

    def _encode(self, fields: dict[str, Any]) -> bytes:
        document = orjson.dumps(fields)
        size = len(document) + len(self._binary)
        if self._binary:
            lengths = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (len(document), size)
        else:
            lengths = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
        return b"".join((self._head, lengths, document, self._binary))


class HttpJsonForm:
    """A request whose body is given: OpenAI's, or generate_stream's."""

    __slots__ = ("plain",)

    def __init__(self, head: bytes, body: bytes) -> None:
        self.plain = b"%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """There are no sequences of these."""
        return self.plain


class HttpFormDataForm:
    """A request whose body is the content of a file, as the one field of a form."""

    __slots__ = ("plain",)

    def __init__(self, head: bytes, name: str, content: bytes) -> None:
        boundary = b"trireme-perf"
        while boundary in content:
            boundary += b"-"
        body = b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n--%b--\r\n' % (
            boundary,
            name.encode(),
            content,
            boundary,
        )
        kind = b"Content-Type: multipart/form-data; boundary=%b\r\n" % boundary
        self.plain = b"%b%bContent-Length: %d\r\n\r\n%b" % (head, kind, len(body), body)

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """There are no sequences of these."""
        return self.plain


def _describe(one: RequestInput, is_json: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"name": one.name, "shape": list(one.shape), "datatype": one.datatype}
    if one.place is not None:
        described["parameters"] = region_parameters(one.place)
    elif is_json:
        described["data"] = InputTensor(one.name, one.datatype, one.shape, one.data).elements()
    else:
        described["parameters"] = {"binary_data_size": len(one.data)}
    return described


def _output_entry(name: str, place: RegionPart | None, is_json: bool) -> dict[str, Any]:
    if place is not None:
        return {"name": name, "parameters": region_parameters(place)}
    return {"name": name, "parameters": {"binary_data": not is_json}}


def region_parameters(place: RegionPart) -> dict[str, Any]:
    """The parameters of a tensor in shared memory."""
    parameters: dict[str, Any] = {
        "shared_memory_region": place.region,
        "shared_memory_byte_size": place.size_bytes,
    }
    if place.offset:
        parameters["shared_memory_offset"] = place.offset
    return parameters


def response_outputs(body: bytes, json_length: int | None) -> dict[str, tuple[str, Any]]:
    """The outputs of an answer: datatype, and wire bytes or a list of values."""
    document = read_answer(body if json_length is None else body[:json_length])
    position = json_length or len(body)
    outputs = {}
    for output in document.get("outputs", ()):
        parameters = output.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            outputs[output["name"]] = (output.get("datatype", BYTES), output.get("data"))
        else:
            outputs[output["name"]] = (output.get("datatype", BYTES), body[position : position + size])
            position += size
    return outputs


def read_answer(document: bytes) -> Any:
    """JSON as servers write it, with NaN, infinities and bytes that are no UTF-8 as they are; raises ValueError or
    RecursionError."""
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError:
        return json.loads(bytes(document).decode("utf-8", "surrogateescape"))
