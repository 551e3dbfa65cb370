"""The few messages of TensorFlow Serving that a load needs, declared by the numbers of their fields."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "tensorflow.serving"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int64": _Field.TYPE_INT64,
    "int32": _Field.TYPE_INT32,
    "bool": _Field.TYPE_BOOL,
    "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}
_MESSAGES: Final = {
    "Int64Value": "1 int64 value",
    "Any": "1 string type_url, 2 bytes value",
    "ModelSpec": "1 string name, 2 Int64Value version, 3 string signature_name",
    "Dimension": "1 int64 size, 2 string name",
    "TensorShape": "2 Dimension* dim, 3 bool unknown_rank",
    "TensorInfo": "1 string name, 2 int32 dtype, 3 TensorShape tensor_shape",
    "SignatureDef": "1 TensorInfo{} inputs, 2 TensorInfo{} outputs, 3 string method_name",
    "SignatureDefMap": "1 SignatureDef{} signature_def",
    "GetModelMetadataRequest": "1 ModelSpec model_spec, 2 string* metadata_field",
    "GetModelMetadataResponse": "1 ModelSpec model_spec, 2 Any{} metadata",
    "Tensor": "1 int32 dtype, 2 TensorShape tensor_shape, 4 bytes tensor_content, 5 float* float_val, "
    "6 double* double_val, 7 int32* int_val, 8 bytes* string_val, 10 int64* int64_val, 11 bool* bool_val, "
    "13 int32* half_val, 16 uint32* uint32_val, 17 uint64* uint64_val",
    "PredictRequest": "1 ModelSpec model_spec, 2 Tensor{} inputs, 3 string* output_filter",
    "PredictResponse": "1 Tensor{} outputs, 2 ModelSpec model_spec",
}
"""Number, type and name of each field; `*` behind a type repeats it, `{}` makes a map of texts to it."""

DATATYPES: Final = {
    1: "FP32", 2: "FP64", 3: "INT32", 4: "UINT8", 5: "INT16", 6: "INT8", 7: "BYTES",
    9: "INT64", 10: "BOOL", 14: "BF16", 17: "UINT16", 19: "FP16", 22: "UINT32", 23: "UINT64",
}  # fmt: skip
"""TensorFlow's numbers of datatypes."""


def _declared() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="tensorflow_serving", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            number, kind, field_name = field.split()
            _add_field(message, int(number), kind, field_name)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, kind: str, name: str) -> None:
    label = _Field.LABEL_REPEATED if kind[-1] in "*}" else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if kind.endswith("{}"):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, 1, "string", "key")
        _add_field(entry, 2, kind.removesuffix("{}"), "value")
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"
    elif (scalar := _SCALARS.get(kind.rstrip("*"))) is not None:
        field.type = scalar
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind.rstrip('*')}"


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_declared())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES: Final = _classes()
SignatureDefMap = _CLASSES["SignatureDefMap"]
GetModelMetadataRequest = _CLASSES["GetModelMetadataRequest"]
GetModelMetadataResponse = _CLASSES["GetModelMetadataResponse"]
PredictRequest = _CLASSES["PredictRequest"]
PredictResponse = _CLASSES["PredictResponse"]
