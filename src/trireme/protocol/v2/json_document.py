"""The JSON document of an inference request: inputs, requested outputs and parameters, checked field by field."""

from __future__ import annotations

from typing import Any, Final

from trireme.core.datatype import BYTES, ITEM_SIZE, WIRE_NAMES, Parameter, meant_datatype
from trireme.core.elements import element_count
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError, UnsupportedError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, OutputParameters, RegionPlace
from trireme.protocol.json_codec.access import (
    bool_of,
    in_field,
    list_of,
    member_of,
    members_of,
    mistyped,
    mistyped_name,
    name_of,
    name_too_long,
    string_of,
    uint_of,
)
from trireme.protocol.json_codec.reader import MAX_NAME_CHARS
from trireme.protocol.json_codec.tensor import TOLD_NAME_CHARS, check_json_input, decode_input, pack_run
from trireme.protocol.json_codec.text import parse
from trireme.protocol.v2.other_protocol import other_protocol
from trireme.protocol.v2.size_limit import document_too_large, input_too_large

RESERVED_PARAMETERS: Final = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
)
MAX_CORRELATION_ID_CHARS: Final = 128
MAX_ENTRIES: Final = 16_384
"""Inputs or outputs of one request, or dimensions of a shape."""
_MAX_COUNT: Final = 2**63 - 1
MAX_PARAMETER: Final = _MAX_COUNT
"""The largest integer that a parameter holds; beyond it there are doubles."""
_SURE_RANK: Final = 4
_SURE_DIM: Final = 32767  # shapes within both cannot overflow the count
_NO_SIZE: Final = 2**64  # fits no region: whoever uses one must say how much of it
_NONE: Final[dict[str, Any]] = {}
_INPUT_FIELDS: Final = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)
_OPTIONAL: Final = ("id", "outputs", "parameters")
_MEMBERS: Final = frozenset(("inputs", *_OPTIONAL))
_PLACES: Final = ("binary_data_size", "shared_memory_region")


class InputEntry:
    """One input as the document describes it; `data` is None where the bytes follow the document or are in a shared
    memory region."""

    __slots__ = ("data", "datatype", "name", "place", "shape", "size_bytes")

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: tuple[int, ...],
        data: bytes | None,
        size_bytes: int,
        place: RegionPlace | None = None,
    ) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data
        self.size_bytes = size_bytes
        self.place = place


class OutputEntry:
    """How one requested output is to be sent."""

    __slots__ = ("class_count", "is_binary", "place")

    def __init__(self, is_binary: bool, class_count: int, place: RegionPlace | None = None) -> None:
        self.place = place  # where the data is to be put in place of sending it
        self.is_binary = is_binary
        self.class_count = class_count  # 0: the tensor itself


class InferDocument:
    """Everything an inference request says apart from binary tensor data; shared between equal requests, so
    nobody changes it."""

    __slots__ = (
        "correlation_id",
        "flags",
        "has_parameters",
        "has_regions",
        "inputs",
        "is_all_binary",
        "is_binary_by_default",
        "mistyped",
        "output_parameters",
        "outputs",
        "parameters",
        "priority",
        "request_id",
        "requested_outputs",
        "timeout_us",
    )

    def __init__(self) -> None:
        self.request_id = ""
        self.inputs: list[InputEntry] = []
        self.outputs: dict[str, OutputEntry] = {}
        self.requested_outputs: tuple[str, ...] = ()
        self.parameters: dict[str, Parameter] = {}
        self.correlation_id: int | str = 0
        self.flags = 0
        self.priority = 0
        self.timeout_us = 0
        self.is_binary_by_default = False
        self.output_parameters: OutputParameters | None = None  # None: outputs as they are
        self.has_parameters = False  # whether anything but inputs and outputs differs from what is usual
        self.has_regions = False  # whether an input or output is in shared memory
        self.mistyped = ""  # which members were not read, and what they were meant to be
        self.is_all_binary = False  # whether no output is to be written out, as JSON or as classes


def decode_document(text: bytes, max_input_size_bytes: int, is_quick: bool = False) -> InferDocument:
    """Reads a document; raises ServingError with Triton's text, and with `is_quick` SlowTextError for a slow text."""
    if len(text) > max_input_size_bytes:
        raise document_too_large(len(text), max_input_size_bytes)
    return read_document(parse(text, is_quick, pack_run), max_input_size_bytes)


def read_document(root: Any, max_input_size_bytes: int) -> InferDocument:
    """The same from the parsed text."""
    document = InferDocument()
    if isinstance(root, dict):
        if "id" in root:
            document.request_id = _field(name_of, root["id"], "id")
        if "parameters" in root:
            document.has_parameters = True
            _read_parameters(document, root["parameters"])
    try:
        inputs = list_of(member_of(root, "inputs"))
    except InternalError as error:
        raise in_field("inputs", InternalError(error.message + other_protocol(root))) from None
    check_count("inputs", len(inputs))
    document.inputs = [_read_input(entry, max_input_size_bytes) for entry in inputs]
    for entry in document.inputs:
        if entry.place is not None:
            document.has_regions = True
    if len(inputs) > 1:
        _check_unique(document, "input", [entry.name for entry in document.inputs])
    if not root.keys() <= _MEMBERS:
        document.mistyped = _mistyped_members(root)
    if "outputs" in root:
        outputs = _field(list_of, root["outputs"], "outputs")
        check_count("outputs", len(outputs))
        _read_outputs(document, outputs)
    if document.outputs:
        document.is_all_binary = all(
            requested_output.place is not None or (requested_output.is_binary and not requested_output.class_count)
            for requested_output in document.outputs.values()
        )
    else:
        document.is_all_binary = document.is_binary_by_default
    return document


def check_count(what: str, count: int) -> None:
    """Raises where a request has more of something than any model takes."""
    if count > MAX_ENTRIES:
        raise InvalidArgumentError(f"the request has {count} {what}; the limit is {MAX_ENTRIES}")


def custom_parameter(name: str, value: Any) -> Parameter:
    """A parameter of the user's own; integers beyond 64 signed bits become doubles."""
    kind = type(value)
    if kind is int and value > MAX_PARAMETER:
        return float(value)
    if kind is str or kind is int or kind is bool or kind is float:
        return value  # type: ignore[no-any-return]
    raise InvalidArgumentError(f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'.")


def _field(read: Any, value: Any, name: str) -> Any:
    try:
        return read(value)
    except InternalError as error:
        raise in_field(name, error) from None


def _mistyped_members(root: dict[str, Any]) -> str:
    """Which members that are not read stand in the place of one that could be; empty where none does."""
    found = [(name, mistyped_name(name, root)) for name in _OPTIONAL if name not in root]
    return " and ".join(f"'{written}' in place of '{name}'" for name, written in found if written is not None)


def _read_parameters(document: InferDocument, value: Any) -> None:
    try:
        entries = members_of(value)
    except InternalError as error:
        raise InternalError(f"failed to get request params.: {error.message}") from None
    for name, entry in entries.items():
        if name in RESERVED_PARAMETERS:
            _read_reserved(document, name, entry)
        elif name.startswith("triton_"):
            raise InvalidArgumentError(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
            )
        else:
            document.parameters[name] = custom_parameter(name, entry)


def _read_reserved(document: InferDocument, name: str, value: Any) -> None:
    if name == "sequence_id":
        document.correlation_id = _correlation_id(value)
    elif name == "sequence_start":
        document.flags |= SEQUENCE_START if _field(bool_of, value, name) else 0
    elif name == "sequence_end":
        document.flags |= SEQUENCE_END if _field(bool_of, value, name) else 0
    elif name == "priority":
        document.priority = _field(uint_of, value, name)
    elif name == "timeout":
        document.timeout_us = _field(uint_of, value, name)
    else:
        document.is_binary_by_default = _field(bool_of, value, name)


def _correlation_id(value: Any) -> int | str:
    if type(value) is int and 0 <= value < 2**64:
        return value
    text: str = _field(string_of, value, "sequence_id")
    if len(text) > MAX_CORRELATION_ID_CHARS:
        raise UnsupportedError(f"string correlation ID cannot be longer than {MAX_CORRELATION_ID_CHARS} characters")
    return text


def _read_input(entry: Any, max_input_size_bytes: int) -> InputEntry:
    if not isinstance(entry, dict):
        raise _not_one_source({}, {})
    parameters = entry.get("parameters")
    has_data = "data" in entry
    if not isinstance(parameters, dict):
        parameters = _NONE
    elif has_data + ("binary_data_size" in parameters) + ("shared_memory_region" in parameters) != 1:
        raise _not_one_source(entry, parameters)
    if not has_data and not parameters:
        raise _not_one_source(entry, parameters)
    name, datatype, dims = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if type(name) is not str or type(datatype) is not str or type(dims) is not list:
        raise _malformed_input(entry)
    if len(name) > MAX_NAME_CHARS or len(datatype) > MAX_NAME_CHARS:
        raise name_too_long(max(len(name), len(datatype)))
    shape = _read_shape(dims, name)
    if datatype not in WIRE_NAMES:
        meant = meant_datatype(datatype)
        hint = f": '{datatype}', did you mean '{meant}'?" if meant is not None else ""
        raise InvalidArgumentError(f"invalid datatype for input {name}{hint}")
    if has_data:
        data = _read_data(entry["data"], name, datatype, shape, max_input_size_bytes)
        return InputEntry(name, datatype, shape, data, len(data))
    if "shared_memory_region" in parameters:
        place = _read_place(parameters)
        return InputEntry(name, datatype, shape, None, place.size_bytes, place)
    return InputEntry(name, datatype, shape, None, _field(uint_of, parameters["binary_data_size"], "binary_data_size"))


def _malformed_input(entry: Any) -> ServingError:
    try:
        _required(string_of, entry, "name")
        _required(string_of, entry, "datatype")
        _required(list_of, entry, "shape")
    except InternalError as error:
        return InternalError(error.message + _of_input(entry))
    return InternalError("attempt to access JSON non-object as object")


def _required(read: Any, entry: Any, name: str) -> Any:
    try:
        return read(member_of(entry, name))
    except InternalError as error:
        raise in_field(name, error) from None


def _not_one_source(entry: dict[str, Any], parameters: dict[str, Any]) -> ServingError:
    given = ["'data'"] if "data" in entry else []
    given += [f"'{name}'" for name in _PLACES if name in parameters]
    if given:
        return InvalidArgumentError(_INPUT_FIELDS + "set " + " ".join(given) + _of_input(entry))
    instead = mistyped("data", entry) + "".join(mistyped(name, parameters) for name in _PLACES)
    return InvalidArgumentError(_INPUT_FIELDS + "no field is set" + instead + _of_input(entry))


def _of_input(entry: dict[str, Any]) -> str:
    """Which input is meant, behind Triton's words; nothing where it has no name."""
    name = entry.get("name")
    return f" (input '{name[:TOLD_NAME_CHARS]}')" if type(name) is str else ""


def _read_shape(dims: list[Any], name: str) -> tuple[int, ...]:
    is_sure = len(dims) <= _SURE_RANK
    if not is_sure:
        check_count("dimensions in a shape", len(dims))
    for dim in dims:
        if type(dim) is not int or dim < 0:
            _field(uint_of, dim, "shape")
        elif dim > _SURE_DIM:
            is_sure = False
    shape = tuple(dims)
    if not is_sure:
        _check_count(shape, name)
    return shape


def _check_count(shape: tuple[int, ...], name: str) -> None:
    listed = ",".join(map(str, shape))
    if any(dim > _MAX_COUNT for dim in shape):
        raise InvalidArgumentError(
            f"invalid shape for input '{name}': shape [{listed}] contains one or more invalid dimensions"
        )
    count = 0 if 0 in shape else 1
    for dim in shape:
        count *= dim
        if count > _MAX_COUNT:  # stop here: the full product of a hostile shape is a number of megabytes
            raise InvalidArgumentError(
                f"invalid shape for input '{name}': shape [{listed}] causes total element count to exceed maximum "
                f"size of {_MAX_COUNT}"
            )


def _read_data(data: Any, name: str, datatype: str, shape: tuple[int, ...], max_size_bytes: int) -> bytes:
    count = element_count(shape) if shape else 0  # an empty shape is refused later, whatever the data is
    if not count:
        return b""
    check_json_input(name, datatype)
    if datatype != BYTES:
        if count * ITEM_SIZE[datatype] > max_size_bytes:
            raise input_too_large(name, count * ITEM_SIZE[datatype], max_size_bytes)
        return decode_input(name, datatype, data, count)
    encoded = decode_input(name, datatype, data, count)
    if len(encoded) > max_size_bytes:
        raise input_too_large(name, len(encoded), max_size_bytes)
    return encoded


def _read_outputs(document: InferDocument, entries: list[Any]) -> None:
    names: list[str] = []
    class_counts: dict[str, int] = {}
    places: dict[str, RegionPlace] = {}
    for entry in entries:
        name: str = _required(name_of, entry, "name")
        names.append(name)
        parameters = entry.get("parameters")
        requested_output = document.outputs[name] = _read_output(parameters if isinstance(parameters, dict) else {})
        if requested_output.class_count:
            class_counts[name] = requested_output.class_count
        if requested_output.place is not None:
            places[name] = requested_output.place
    if len(names) > 1:
        _check_unique(document, "output", names)
    document.requested_outputs = tuple(names)
    if class_counts or places:
        document.output_parameters = OutputParameters(class_counts, places)
        document.has_regions = document.has_regions or bool(places)


def _read_output(parameters: dict[str, Any]) -> OutputEntry:
    is_binary = "binary_data" in parameters and _field(bool_of, parameters["binary_data"], "binary_data")
    try:
        class_count = uint_of(parameters.get("classification", 0))
    except InternalError as error:
        raise InternalError(f"Unable to set 'classification': {error.message}") from None
    if "shared_memory_region" in parameters:
        for clash, is_set in (("classification", class_count > 0), ("binary_data", is_binary)):
            if is_set:
                raise InvalidArgumentError(f"Output can't set both 'shared_memory_region' and '{clash}'")
        return OutputEntry(False, 0, _read_place(parameters))
    return OutputEntry(is_binary, class_count)


def _read_place(parameters: dict[str, Any]) -> RegionPlace:
    region = _field(name_of, parameters["shared_memory_region"], "shared_memory_region")
    offset = _field(uint_of, parameters.get("shared_memory_offset", 0), "shared_memory_offset")
    size_bytes = _NO_SIZE
    if "shared_memory_byte_size" in parameters:
        size_bytes = _field(uint_of, parameters["shared_memory_byte_size"], "shared_memory_byte_size")
    return RegionPlace(region, offset, size_bytes)


def _check_unique(document: InferDocument, kind: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidArgumentError(f"{kind} '{name}' already exists in request").for_request(document.request_id)
        seen.add(name)
