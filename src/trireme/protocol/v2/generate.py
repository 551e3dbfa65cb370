"""The generate extension: a flat JSON object to tensors and parameters, and a response to a flat JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.core.datatype import BYTES, ITEM_SIZE, Parameter
from trireme.core.elements import decode_bytes, element_count
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.protocol.json_codec.access import in_field, members_of, name_of, object_of
from trireme.protocol.json_codec.tensor import check_json_input, decode_input, encode_elements
from trireme.protocol.json_codec.text import encode_scalar, encode_string, members, parse, with_last_members
from trireme.protocol.json_codec.writer import encode_value
from trireme.protocol.v2.json_document import MAX_PARAMETER, custom_parameter
from trireme.protocol.v2.size_limit import document_too_large, input_too_large

NOT_ONE_RESPONSE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)
_NESTED = "parameters"
_OPTIONS = "sampling_parameters"
"""The input that takes options as a JSON text, where a model has it."""

InputForm = tuple[str, tuple[int, ...]]
"""An input's datatype and its shape as metadata gives it, -1 for the batch in front where there is one."""


class GenerateDocument:
    """What a generate request says, in the terms of an inference request."""

    __slots__ = ("inputs", "options", "parameters", "request_id", "size_bytes")

    def __init__(self) -> None:
        self.request_id = ""
        self.inputs: dict[str, Tensor] = {}
        self.parameters: dict[str, Parameter] = {}
        self.options: dict[str, Any] = {}
        """What parameters cannot hold, lists, objects and large integers, for a model that takes such."""
        self.size_bytes = 0


def decode_generate(
    text: bytes,
    forms: Mapping[str, InputForm],
    max_input_size_bytes: int,
    json_input: str = "",
    is_quick: bool = False,
) -> GenerateDocument:
    """Reads a request to a model with these inputs; raises ServingError with Triton's text. A list of objects in
    `json_input` becomes its JSON text, and so do lists, objects and integers beyond 64 signed bits that are no inputs,
    together, for a model with `sampling_parameters`. With `is_quick` SlowTextError, where that takes long."""
    if len(text) > max_input_size_bytes:
        raise document_too_large(len(text), max_input_size_bytes)
    return read_generate(parse(text, is_quick), forms, max_input_size_bytes, json_input)


def read_generate(
    value: Any, forms: Mapping[str, InputForm], max_input_size_bytes: int, json_input: str = ""
) -> GenerateDocument:
    """The same from the parsed text."""
    root = members_of(value)
    document = GenerateDocument()
    if "id" in root:
        try:
            document.request_id = name_of(root["id"])
        except InternalError as error:
            raise in_field("id", error) from None
    for name, value in members(root):
        if name == _NESTED:
            _read_nested(document, value, forms, max_input_size_bytes)
        else:
            if name == json_input and type(value) is list and value and isinstance(value[0], dict):
                value = encode_value(name, value).decode()
            _read_member(document, name, value, forms, max_input_size_bytes)
    if document.options:
        given = document.inputs.pop(_OPTIONS, None)
        document.size_bytes -= 0 if given is None else len(given.data)
        _read_member(document, _OPTIONS, _joined_options(given, document.options), forms, max_input_size_bytes)
    return document


def encode_generate(model: tuple[str, str], request_id: str, response: InferenceResponse) -> bytes:
    """One response as an object with sorted names; `model` is the name and the version that answered."""
    found = {"model_name": encode_string(model[0]), "model_version": encode_string(model[1])}
    if request_id:
        found["id"] = encode_string(request_id)
    for name, value in (response.parameters or {}).items():
        found[name] = encode_scalar(value)
    for tensor in response.outputs:
        is_single = element_count(tensor.shape) == 1
        found[tensor.name] = encode_elements(tensor)[1:-1] if is_single else encode_elements(tensor)
    pieces = [b"{"]
    for name in sorted(found):
        pieces += encode_string(name), b":", found[name], b","
    pieces[-1] = b"}"
    return b"".join(pieces)  # at once: a long text is not copied more often than it must be


def _read_nested(document: GenerateDocument, value: Any, forms: Mapping[str, InputForm], limit: int) -> None:
    if _NESTED in forms:
        raise InvalidArgumentError(f"Keyword '{_NESTED}' for nested schema also given as input tensor name")
    try:
        nested = object_of(value)
    except InternalError as error:
        raise InternalError(f"Expected JSON object for keyword: '{_NESTED}': {error.message}") from None
    for name, entry in members(nested):
        try:
            _read_member(document, name, entry, forms, limit)
        except ServingError as error:
            raise ServingError(f"Converting keyword: '{_NESTED}': {error.message}", error.kind) from None


def _read_member(document: GenerateDocument, name: str, value: Any, forms: Mapping[str, InputForm], limit: int) -> None:
    form = forms.get(name)
    if form is None:
        if _is_no_parameter(value) and _takes_options(forms):
            document.options.setdefault(name, value)
        else:
            document.parameters.setdefault(name, custom_parameter(name, value))
        return
    if name == _OPTIONS and isinstance(value, dict) and form[0] == BYTES:
        value = encode_value(name, value).decode()
    if name in document.inputs:
        raise InvalidArgumentError(f"input '{name}' already exists in request").for_request(document.request_id)
    datatype, metadata_shape = form
    elements = value if type(value) is list else [value]
    if datatype == BYTES:
        data = decode_input(name, datatype, elements, len(elements))
        _count_bytes(document, name, len(data), limit)
        shape = fit_shape(name, metadata_shape, len(elements))
    else:
        shape = fit_shape(name, metadata_shape, len(elements))
        check_json_input(name, datatype)
        _count_bytes(document, name, len(elements) * ITEM_SIZE[datatype], limit)
        data = decode_input(name, datatype, elements, len(elements))
    document.inputs[name] = Tensor(name, datatype, shape, data)


def _is_no_parameter(value: Any) -> bool:
    """Whether a parameter cannot hold it, or not to its last digit."""
    return isinstance(value, list | dict) or (type(value) is int and value > MAX_PARAMETER)


def _takes_options(forms: Mapping[str, InputForm]) -> bool:
    return _OPTIONS in forms and forms[_OPTIONS][0] == BYTES


def _joined_options(given: Tensor | None, options: dict[str, Any]) -> str:
    """The options of both as one JSON text; those of the document itself count."""
    if given is not None:
        try:
            (text,) = decode_bytes(given.data)
            found = with_last_members(parse(text))  # as the model would read it
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"'{_OPTIONS}' must be one JSON object: {error.message}") from None
        except (ValueError, InternalError):
            found = None
        if not isinstance(found, dict):
            raise InvalidArgumentError(f"'{_OPTIONS}' must be one JSON object")
        options = found | options
    return encode_value(_OPTIONS, options).decode()


def _count_bytes(document: GenerateDocument, name: str, size_bytes: int, limit: int) -> None:
    document.size_bytes += size_bytes
    if document.size_bytes > limit:
        raise input_too_large(name, document.size_bytes, limit)


def fit_shape(name: str, metadata_shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Fixed dimensions divide the count; the innermost variable one takes what is left, the others are 1."""
    rest = count
    for dim in metadata_shape:
        if dim > 0:
            if rest % dim:
                raise _does_not_fit(name)
            rest //= dim
    shape: list[int] = []
    for dim in reversed(metadata_shape):
        if dim >= 0:
            shape.append(dim)
        else:
            shape.append(rest)
            rest = 1
    if rest != 1:
        raise _does_not_fit(name)
    return tuple(reversed(shape))


def _does_not_fit(name: str) -> ServingError:
    return InvalidArgumentError(f"The schema can not convert input '{name}' to tensor with proper shape")
