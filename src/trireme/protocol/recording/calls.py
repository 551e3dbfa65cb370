"""Recorded calls as frames and back, and the frames around them: how a recording began, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.request import Parameter
from trireme.core.tensor import Tensor
from trireme.protocol.recording.frames import Frame, FrameError, cleaned, encode_frame

BEGIN: Final = "recording"
CALL: Final = "call"
END: Final = "end"

_FLAGS = ("is_start", "is_end", "is_cut")
_PLAIN = ("version", "served_version", "protocol", "request_id", "correlation_id", "priority", "timeout_us")


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
    header |= {"unplayable": call.unplayable} if call.unplayable else {}
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
        inputs = tuple(reader.tensor(entry) for entry in header["inputs"])
        responses = tuple(_response_of(entry, reader) for entry in header.get("responses", ()))
        return RecordedCall(
            at_ns=int(header["at_ns"]),
            model=str(header["model"]),
            inputs=inputs,
            outputs=tuple(header.get("outputs", ())),
            class_counts=header.get("class_counts", {}),
            parameters=_parameters(header),
            shared_memory=tuple(header.get("shared_memory", ())),
            responses=responses,
            is_finished=header.get("is_finished", True),
            unplayable=header.get("unplayable", ""),
            has_answer="responses" in header,
            **{name: header[name] for name in (*_PLAIN, *_FLAGS) if name in header},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadCallError(f"the frame at byte {frame.offset} describes no call: {error!r}") from None


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
        int(entry["after_ns"]),
        tuple(reader.tensor(output) for output in entry.get("outputs", ())),
        _parameters(entry),
        entry.get("error"),
        entry.get("error_kind", ""),
        entry.get("is_empty", False),
    )


def _parameters(entry: Mapping[str, Any]) -> dict[str, Parameter]:
    """A number that JSON does not have, such as an infinity, is written as null and left out."""
    return {name: value for name, value in entry.get("parameters", {}).items() if value is not None}


class _DataReader:
    """Hands out a frame's data in the order in which its text names it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def tensor(self, entry: Mapping[str, Any]) -> Tensor:
        size = int(entry["size"])
        start = self._position
        self._position = end = start + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"tensor '{entry['name']}' is longer than the data")
        return Tensor(entry["name"], entry["datatype"], tuple(entry["shape"]), self._data[start:end])
