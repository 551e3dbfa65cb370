"""A small ONNX file, y = 2 x + 1, written without the onnx package: its wire format is protobuf's."""

from __future__ import annotations

import struct

_FLOAT = 1
"""TensorProto.DataType."""
_BATCH = "batch"


def line_model() -> bytes:
    """The file: x and y are FP32 of [batch, 4]."""
    graph = b"".join(
        [
            _field(1, _node("Mul", ("x", "factor"), "product")),
            _field(1, _node("Add", ("product", "offset"), "y")),
            _field(2, b"line"),
            _field(5, _constant("factor", 2.0)),
            _field(5, _constant("offset", 1.0)),
            _field(11, _value("x")),
            _field(12, _value("y")),
        ]
    )
    opset = _number(2, 13)
    return _number(1, 8) + _field(2, b"trireme") + _field(7, graph) + _field(8, opset)


def _node(operator: str, inputs: tuple[str, ...], output: str) -> bytes:
    named = b"".join(_field(1, name.encode()) for name in inputs)
    return named + _field(2, output.encode()) + _field(4, operator.encode())


def _constant(name: str, value: float) -> bytes:
    """A TensorProto of no dimensions."""
    return _number(2, _FLOAT) + _field(8, name.encode()) + _field(9, struct.pack("<f", value))


def _value(name: str) -> bytes:
    """A ValueInfoProto: a tensor of [batch, 4]."""
    shape = _field(1, _field(2, _BATCH.encode())) + _field(1, _number(1, 4))
    tensor = _number(1, _FLOAT) + _field(2, shape)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
