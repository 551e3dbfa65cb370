"""Writes the types of Triton's configuration messages for mypy, from their descriptor: python docs/generate_stubs.py"""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trireme.proto import model_config_pb2

STUB = Path(__file__).parents[1] / "src/trireme/proto/model_config_pb2.pyi"

HEAD = '''\
"""The types of the messages of `config.pbtxt`; written by docs/generate_stubs.py from their descriptor."""

from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from typing import Any, Self, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
M = TypeVar("M", bound=Message)

DESCRIPTOR: Any

class Message:
    DESCRIPTOR: Any
    def __init__(self, **fields: Any) -> None: ...
    def ByteSize(self) -> int: ...
    def Clear(self) -> None: ...
    def ClearField(self, field_name: str) -> None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def HasField(self, field_name: str) -> bool: ...
    def ListFields(self) -> list[tuple[Any, Any]]: ...
    def MergeFrom(self, other: Self) -> None: ...
    def MergeFromString(self, serialized: bytes) -> int: ...
    def ParseFromString(self, serialized: bytes) -> int: ...
    def SerializeToString(self, *, deterministic: bool = False) -> bytes: ...
    def WhichOneof(self, oneof_group: str) -> str | None: ...

class Repeated(MutableSequence[T]):
    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __setitem__(self, index: int | slice, value: Any) -> None: ...
    def __delitem__(self, index: int | slice) -> None: ...
    def __len__(self) -> int: ...
    def insert(self, index: int, value: T) -> None: ...
    def extend(self, values: Iterable[T]) -> None: ...

class RepeatedMessage(Repeated[M]):
    def add(self, **fields: Any) -> M: ...

class Map(MutableMapping[K, T]):
    def __getitem__(self, key: K) -> T: ...
    def __setitem__(self, key: K, value: T) -> None: ...
    def __delitem__(self, key: K) -> None: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...

class EnumType:
    def Name(self, number: int) -> str: ...
    def Value(self, name: str) -> int: ...
    def keys(self) -> list[str]: ...
    def values(self) -> list[int]: ...
'''


def stub() -> str:
    """The whole file."""
    file = model_config_pb2.DESCRIPTOR
    lines = [HEAD]
    for name in sorted(file.enum_types_by_name):
        lines += [*_enum(file.enum_types_by_name[name]), ""]
    for name in sorted(file.message_types_by_name):
        lines += [*_message(file.message_types_by_name[name], ""), ""]
    return "\n".join(lines).rstrip() + "\n"


def _message(message: Any, indent: str) -> Iterator[str]:
    yield f"{indent}class {message.name}(Message):"
    inner = indent + "    "
    for enum in message.enum_types:
        yield from (inner + line for line in _enum(enum))
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from _message(nested, inner)
    for field in message.fields:
        if not keyword.iskeyword(field.name):  # such a field is read with `getattr`
            yield f"{inner}{field.name}: {_type(field)}"
    if not message.fields and not message.enum_types:
        yield f"{inner}pass"


def _enum(enum: Any) -> Iterator[str]:
    yield f"{enum.name}: EnumType"
    for value in enum.values:
        yield f"{value.name}: int"


def _type(field: Any) -> str:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return f"Map[{_single_type(key)}, {_single_type(value)}]"
    if field.is_repeated:
        return f"{'Repeated' if entry is None else 'RepeatedMessage'}[{_single_type(field)}]"
    return _single_type(field)


def _single_type(field: Any) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name.removeprefix("inference."))
    names = {
        field.CPPTYPE_BOOL: "bool",
        field.CPPTYPE_DOUBLE: "float",
        field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_STRING: "bytes" if field.type == field.TYPE_BYTES else "str",
    }
    return names.get(field.cpp_type, "int")


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
