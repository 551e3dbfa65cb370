"""Responses to `ModelInferResponse` and `ModelStreamInferResponse` bytes, written by hand around the tensor data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from trireme.core.datatype import Parameter
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import NO_SEQUENCE, InferenceResponse
from trireme.proto import service_pb2

ParameterT = TypeVar("ParameterT", bound=Parameter)

_MAX_CACHED: Final = 4096
_SMALL_BYTES: Final = 16384
_SHORT: Final = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    """An unsigned number as protobuf writes it."""
    if value < 128:
        return _SHORT[value]
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_parameters(parameters: Mapping[str, Parameter]) -> bytes:
    """Field 4 of a response; raises InternalError where a model has given a number that no parameter can be."""
    message = service_pb2.ModelInferResponse()
    try:
        for key, value in parameters.items():
            entry = message.parameters[key]
            if isinstance(value, bool):
                entry.bool_param = value
            elif isinstance(value, int):
                if -(2**63) <= value < 2**63:
                    entry.int64_param = value
                elif 0 < value < 2**64:
                    entry.uint64_param = value
                else:
                    raise InternalError(f"the model's parameter '{key}' is a number of more than 64 bits")
            elif isinstance(value, float):
                entry.double_param = value
            else:
                entry.string_param = value
    except UnicodeEncodeError:
        return encode_parameters({_well_formed(key): _well_formed(value) for key, value in parameters.items()})
    encoded: bytes = message.SerializeToString()
    return encoded


def _well_formed(value: ParameterT) -> ParameterT | str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


_NO_SEQUENCE: Final = encode_parameters(NO_SEQUENCE)
_FINAL_MARK: Final = {is_final: encode_parameters({"triton_final_response": is_final}) for is_final in (True, False)}


class InferResponseEncoder:
    """Encodes responses with caches of what repeats: names and versions of models, descriptions of outputs."""

    __slots__ = ("_models", "_outputs")

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], bytes] = {}
        self._outputs: dict[tuple[str, str, tuple[int, ...]], bytes] = {}

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> tuple[list[Buffer], int]:
        """A `ModelInferResponse` in pieces, tensor data as it is where it is large, and the size of all."""
        head = self._models.get((request.model_name, request.served_version))
        if head is None or request.id:
            head = self._head(request.model_name, request.served_version, request.id)
        if response.parameters:
            head += _parameters_of(response.parameters)
        return self._with_outputs(head, response)

    def encode_in_stream(self, request: InferenceRequest, response: InferenceResponse) -> tuple[list[Buffer], int]:
        """The same as a `ModelStreamInferResponse`, which says whether it is the request's last."""
        head = self._head(request.model_name, request.served_version, request.id)
        if response.parameters:
            head += _parameters_of(response.parameters)
        pieces, size = self._with_outputs(head + _FINAL_MARK[response.is_final], response)
        prefix = b"\x12" + varint(size)
        if len(pieces) == 1:
            return [prefix + pieces[0]], size + len(prefix)
        return [prefix, *pieces], size + len(prefix)

    def encode_empty_final(self, request: InferenceRequest) -> bytes:
        """The mark that ends a decoupled request, for clients that asked for it."""
        body = self._head(request.model_name, request.model_version, request.id) + _FINAL_MARK[True]
        return b"\x12" + varint(len(body)) + body

    def encode_execution_error(self, request: InferenceRequest, message: str, is_final: bool) -> bytes:
        """An error of a request that was running."""
        body = self._head(request.model_name, request.model_version, request.id) + _FINAL_MARK[is_final]
        return _text(b"\x0a", message) + b"\x12" + varint(len(body)) + body

    def encode_refusal(self, request_id: str, message: str) -> bytes:
        """An error of a request that never ran."""
        body = _text(b"\x1a", request_id)
        return _text(b"\x0a", message) + b"\x12" + varint(len(body)) + body

    def _head(self, model_name: str, version: str, request_id: str) -> bytes:
        head = self._models.get((model_name, version))
        if head is None:
            if len(self._models) >= _MAX_CACHED:
                self._models.clear()
            head = self._models[(model_name, version)] = _text(b"\x0a", model_name) + _text(b"\x12", version)
        return head + _text(b"\x1a", request_id) if request_id else head

    def _with_outputs(self, head: bytes, response: InferenceResponse) -> tuple[list[Buffer], int]:
        known = self._outputs
        outputs = response.outputs
        if len(outputs) == 1 and len(outputs[0].data) < _SMALL_BYTES:
            tensor = outputs[0]
            key = (tensor.name, tensor.datatype, tuple(tensor.shape))
            data = tensor.data
            body = b"".join((head, known.get(key) or self._describe(key), b"\x32", varint(len(data)), data))
            return [body], len(body)
        pieces: list[Buffer] = [head]
        for tensor in outputs:
            key = (tensor.name, tensor.datatype, tuple(tensor.shape))
            pieces.append(known.get(key) or self._describe(key))
        size = sum(map(len, pieces))
        for tensor in outputs:
            data = tensor.data
            data_size = len(data)
            mark = b"\x32" + varint(data_size)
            pieces.append(mark)
            pieces.append(data)
            size += len(mark) + data_size
        if size <= _SMALL_BYTES:
            return [b"".join(pieces)], size
        return pieces, size

    def _describe(self, key: tuple[str, str, tuple[int, ...]]) -> bytes:
        if len(self._outputs) >= _MAX_CACHED:
            self._outputs.clear()
        message = service_pb2.ModelInferResponse()
        message.outputs.add(name=key[0], datatype=key[1], shape=key[2])
        described: bytes = message.SerializeToString()
        self._outputs[key] = described
        return described


def _parameters_of(parameters: dict[str, Parameter]) -> bytes:
    return _NO_SEQUENCE if parameters is NO_SEQUENCE else encode_parameters(parameters)


def _text(tag: bytes, text: str) -> bytes:
    if not text:
        return b""
    encoded = text.encode("utf-8", "replace")
    return tag + varint(len(encoded)) + encoded
