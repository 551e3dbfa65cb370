"""Inference requests as gRPC messages, made once; what sequences add is put behind, as protobuf allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trireme.proto import service_pb2
from trireme.protocol.grpc_frames import PREFIX_BYTES, MessageAssembler, compress, decompress
from trireme.tools.perf.data.batches import RegionPart, RequestContent
from trireme.tools.perf.options import RequestParameter
from trireme.tools.perf.wire.http_requests import region_parameters

EMPTY_FINAL = "triton_enable_empty_final_response"
FINAL_MARK = b"\n\x15triton_final_response\x12\x02\x08\x01"
"""How a response says in its parameters that it is the last; text of a model that looks the same is looked at twice."""
_LARGEST_MESSAGE = 2**31 - 1


def frame(message: bytes, encoding: str | None = None) -> bytes:
    """A message behind its prefix."""
    if encoding is None:
        return len(message).to_bytes(PREFIX_BYTES, "big") + message
    packed = compress([message], encoding)
    return b"\x01" + len(packed).to_bytes(4, "big") + packed


def unframe(data: bytes, encoding: str = "") -> bytes:
    """The first message of a body; raises ValueError where there is none."""
    messages = MessageAssembler().feed(data)
    if not messages:
        raise ValueError("the server's answer is cut short")
    is_compressed, message = messages[0]
    return decompress(message, encoding, _LARGEST_MESSAGE) if is_compressed else bytes(message)


class GrpcInferForm:
    """One request; those of sequences differ in their parameters."""

    __slots__ = ("_encoding", "_message", "plain")

    def __init__(
        self,
        model: str,
        version: str,
        content: RequestContent,
        outputs: Mapping[str, RegionPart | None],
        *,
        parameters: Iterable[RequestParameter],
        encoding: str | None,
        wants_empty_final: bool,
    ) -> None:
        request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
        for one in content.inputs:
            described = request.inputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
            if one.place is not None:
                _set_parameters(described.parameters, region_parameters(one.place))
            else:
                request.raw_input_contents.append(one.data)
        for name, place in outputs.items():
            requested_output = request.outputs.add(name=name)
            if place is not None:
                _set_parameters(requested_output.parameters, region_parameters(place))
        for parameter in parameters:
            _set_parameters(request.parameters, {parameter.name: _value(parameter)})
        for step in content.steps[:1]:
            _set_parameters(request.parameters, dict(step.parameters))
        if wants_empty_final:
            request.parameters[EMPTY_FINAL].bool_param = True
        self._encoding = encoding
        self._message: bytes = request.SerializeToString()
        self.plain = frame(self._message, encoding)

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """The same as a part of a sequence."""
        added = service_pb2.ModelInferRequest()
        added.parameters["sequence_id"].int64_param = sequence_id
        added.parameters["sequence_start"].bool_param = is_start
        added.parameters["sequence_end"].bool_param = is_end
        return frame(self._message + added.SerializeToString(), self._encoding)


def _set_parameters(target: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int):
            target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        else:
            target[name].string_param = str(value)


def _value(parameter: RequestParameter) -> bool | int | str:
    if parameter.kind == "bool":
        return parameter.value.lower() in ("true", "1")
    return int(parameter.value) if parameter.kind == "int" else parameter.value


def response_outputs(response: Any) -> dict[str, tuple[str, Any]]:
    """The outputs of a ModelInferResponse: datatype and wire bytes."""
    raw = response.raw_output_contents
    return {
        output.name: (output.datatype, raw[number] if number < len(raw) else b"")
        for number, output in enumerate(response.outputs)
    }
