"""Recorded calls as frames and back, and the frames around them: how a recording began, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.tensor import Tensor
from trireme.protocol.recording.frames import Frame, FrameError, cleaned, encode_frame
from trireme.protocol.recording.members import (
    MemberError,
    correlation_id_in,
    count_in,
    flag_in,
    object_in,
    objects_in,
    parameters_in,
    shape_in,
    text_in,
    texts_in,
)

BEGIN: Final = "recording"
CALL: Final = "call"
END: Final = "end"

_FLAGS = ("is_start", "is_end", "is_cut")
_PLAIN = (
    "version",
    "served_version",
    "protocol",
    "request_id",
    "correlation_id",
    "priority",
    "timeout_us",
    "unplayable",
)
_PROTOCOLS = ("http", "grpc")


class BadCallError(ValueError):
    """A frame's text does not describe a call."""


def encode_begin(facts: Mapping[str, Any]) -> bytes:
    """The first frame of a recording: who recorded what, when and how."""
    return encode_frame({"kind": BEGIN, **facts})


def encode_end(facts: Mapping[str, Any]) -> bytes:
    """The last frame: why it ended, and what was counted."""
    return encode_frame({"kind": END, **facts})


def encode_calls(calls: Iterable[RecordedCall]) -> bytes:
    """The frames of these calls, one behind the other. May run on a thread."""
    return b"".join(map(encode_call, calls))


def encode_call(call: RecordedCall) -> bytes:
    """The call's frame: what says nothing is left out."""
    parts: list[bytes] = []
    header: dict[str, Any] = {"kind": CALL, "at_ns": call.at_ns, "model": call.model}
    header |= {name: value for name in _PLAIN if (value := getattr(call, name))}
    header |= {name: True for name in _FLAGS if getattr(call, name)}
    header["inputs"] = [_tensor_entry(tensor, parts) for tensor in call.inputs]
    for name, values in (("outputs", list(call.outputs)), ("shared_memory", list(call.shared_memory))):
        header |= {name: values} if values else {}
    header |= {"class_counts": dict(call.class_counts)} if call.class_counts else {}
    header |= {"parameters": dict(call.parameters)} if call.parameters else {}
    header |= {} if call.is_finished else {"is_finished": False}
    if call.has_answer:
        header["responses"] = [_response_entry(response, parts) for response in call.responses]
    try:
        return encode_frame(header, b"".join(parts))
    except FrameError as error:
        return encode_frame(
            {"kind": CALL, "at_ns": call.at_ns, "model": cleaned(call.model), "inputs": [], "unplayable": str(error)}
        )


def decode_call(frame: Frame) -> RecordedCall:
    """The call of a frame of that kind; raises BadCallError."""
    header = frame.header
    reader = _DataReader(frame.data)
    try:
        class_counts = object_in(header, "class_counts")
        protocol = text_in(header, "protocol", "")
        return RecordedCall(
            count_in(header, "at_ns"),
            text_in(header, "model"),
            text_in(header, "version", ""),
            text_in(header, "served_version", ""),
            protocol if protocol in _PROTOCOLS else "",
            text_in(header, "request_id", ""),
            inputs=tuple(map(reader.tensor, objects_in(header, "inputs"))),
            outputs=texts_in(header, "outputs"),
            class_counts={name: count_in(class_counts, name) for name in class_counts},
            parameters=parameters_in(header),
            correlation_id=correlation_id_in(header),
            is_start=flag_in(header, "is_start"),
            is_end=flag_in(header, "is_end"),
            priority=count_in(header, "priority", 0),
            timeout_us=count_in(header, "timeout_us", 0),
            shared_memory=texts_in(header, "shared_memory"),
            responses=tuple(_response_of(entry, reader) for entry in objects_in(header, "responses", [])),
            is_finished=flag_in(header, "is_finished", True),
            is_cut=flag_in(header, "is_cut"),
            unplayable=text_in(header, "unplayable", ""),
            has_answer="responses" in header,
        )
    except MemberError as error:
        raise BadCallError(f"the frame at byte {frame.offset} describes no call: {error}") from None


def _tensor_entry(tensor: Tensor, parts: list[bytes]) -> dict[str, Any]:
    data = bytes(tensor.data)
    parts.append(data)
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "size": len(data)}


def _response_entry(response: RecordedResponse, parts: list[bytes]) -> dict[str, Any]:
    entry: dict[str, Any] = {"after_ns": response.after_ns}
    if response.outputs:
        entry["outputs"] = [_tensor_entry(tensor, parts) for tensor in response.outputs]
    if response.parameters:
        entry["parameters"] = dict(response.parameters)
    if response.error is not None:
        entry |= {"error": response.error, "error_kind": response.error_kind}
    return entry | ({"is_empty": True} if response.is_empty else {})


def _response_of(entry: Mapping[str, Any], reader: _DataReader) -> RecordedResponse:
    return RecordedResponse(
        count_in(entry, "after_ns"),
        tuple(map(reader.tensor, objects_in(entry, "outputs", []))),
        parameters_in(entry),
        text_in(entry, "error") if "error" in entry else None,
        text_in(entry, "error_kind", ""),
        flag_in(entry, "is_empty"),
    )


class _DataReader:
    """Hands out a frame's data in the order in which its text names it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def tensor(self, entry: Mapping[str, Any]) -> Tensor:
        name, size = text_in(entry, "name"), count_in(entry, "size")
        start = self._position
        self._position = end = start + size
        if end > len(self._data):
            raise MemberError(f"tensor '{name}' is longer than the data")
        return Tensor(name, text_in(entry, "datatype"), shape_in(entry), self._data[start:end])
