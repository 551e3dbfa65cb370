"""Predictions of TensorFlow Serving as gRPC messages, made once."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import decode_bytes, encode_bytes
from trireme.tools.perf.data.batches import RequestContent
from trireme.tools.perf.wire.grpc_requests import frame
from trireme.tools.perf.wire.tensorflow_messages import DATATYPES, PredictRequest, PredictResponse

SERVICE: Final = "tensorflow.serving.PredictionService"
_NUMBERS: Final = {datatype: number for number, datatype in DATATYPES.items()}
_LISTS: Final = {
    "FP32": "float_val", "FP64": "double_val", "INT64": "int64_val", "BOOL": "bool_val", "UINT32": "uint32_val",
    "UINT64": "uint64_val", "FP16": "half_val", "BF16": "half_val",
}  # fmt: skip
"""Where a tensor has its values if not as bytes; smaller whole numbers share `int_val`."""


class PredictForm:
    """One prediction."""

    __slots__ = ("plain",)

    def __init__(
        self, model: str, version: str, signature: str, content: RequestContent, *, encoding: str | None
    ) -> None:
        request = PredictRequest()
        set_model(request.model_spec, model, version, signature)
        for one in content.inputs:
            tensor = request.inputs[one.name]
            tensor.dtype = _NUMBERS[one.datatype]
            for dim in one.shape:
                tensor.tensor_shape.dim.add(size=dim)
            if one.datatype == BYTES:
                tensor.string_val.extend(decode_bytes(one.data))
            else:
                tensor.tensor_content = one.data
        self.plain = frame(request.SerializeToString(), encoding)

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """There are no sequences of these."""
        return self.plain


def set_model(target: Any, model: str, version: str, signature: str = "") -> None:
    """Names the model in a ModelSpec."""
    target.name = model
    target.signature_name = signature
    if version:
        target.version.value = int(version)


def response_outputs(body: bytes) -> dict[str, tuple[str, Any]]:
    """The outputs of a PredictResponse: datatype, and wire bytes or a list of values."""
    try:
        response = PredictResponse.FromString(body)
    except DecodeError:
        return {}
    return {name: _values(tensor) for name, tensor in response.outputs.items()}


def _values(tensor: Any) -> tuple[str, Any]:
    datatype = DATATYPES.get(tensor.dtype, BYTES)
    if datatype == BYTES:
        return datatype, encode_bytes(tensor.string_val)
    if tensor.tensor_content:
        return datatype, tensor.tensor_content
    values = list(getattr(tensor, _LISTS.get(datatype, "int_val")))
    if datatype in ("FP16", "BF16"):  # bits, not values
        return datatype, b"".join(value.to_bytes(2, "little") for value in values)
    return (datatype, values) if datatype in NUMPY_DTYPE else (BYTES, b"")
