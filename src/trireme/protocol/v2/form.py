"""A form as a request: files and texts that become inputs, pictures that are still to be decoded, other fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trireme.core.datatype import BYTES
from trireme.core.elements import encode_bytes
from trireme.core.errors import InternalError, InvalidArgumentError, UnsupportedMediaError
from trireme.core.tensor import Tensor
from trireme.protocol.http1.multipart import FormPart, parse_form
from trireme.protocol.json_codec.text import parse
from trireme.protocol.v2.generate import InputForm, fit_shape, read_generate
from trireme.protocol.v2.json_document import InferDocument, check_count, read_document

_CLASSIFICATION = "classification"
_OUTPUTS = "outputs"


@dataclass(slots=True)
class FormDocument:
    """What a form says to a model."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    pictures: list[memoryview] = field(default_factory=list)
    """The files for the input that is made of pictures."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What is no input, as JSON has it: `id`, `outputs`, parameters."""


def decode_form(
    body: bytes, boundary: bytes, forms: Mapping[str, InputForm], picture_input: str, max_input_size_bytes: int
) -> FormDocument:
    """Reads a form for a model with these inputs, of which one may be made of pictures; raises ServingError."""
    groups: dict[str, list[FormPart]] = {}
    for part in parse_form(body, boundary):
        groups.setdefault(part.name, []).append(part)
    document = FormDocument()
    numbers: dict[str, Any] = {}
    for name, parts in groups.items():
        form = forms.get(name)
        if form is None:
            document.fields[name] = _field_value(parts, forms)
        elif form[0] == BYTES:
            shape = fit_shape(name, form[1], len(parts))
            document.inputs[name] = Tensor(name, BYTES, shape, encode_bytes(bytes(part.content) for part in parts))
        elif any(part.is_file for part in parts):
            if name != picture_input:
                raise _not_made_of_files(name, form)
            document.pictures = [part.content for part in parts]
        else:
            numbers[name] = _values(name, parts)
    if numbers:
        document.inputs.update(read_generate(numbers, forms, max_input_size_bytes).inputs)
    return document


def infer_document(form: FormDocument, output_names: list[str], max_input_size_bytes: int) -> InferDocument:
    """The fields that are no inputs as the document of an inference request. `classification` is for all outputs."""
    fields = dict(form.fields)
    root: dict[str, Any] = {"inputs": []}
    if "id" in fields:
        root["id"] = str(fields.pop("id"))
    outputs = fields.pop(_OUTPUTS, None)
    if _CLASSIFICATION in fields:
        parameters = {_CLASSIFICATION: fields.pop(_CLASSIFICATION)}
        root["outputs"] = [{"name": name, "parameters": parameters} for name in _names(outputs) or output_names]
    elif outputs is not None:
        is_described = isinstance(outputs, list) and all(isinstance(entry, dict) for entry in outputs)
        root["outputs"] = outputs if is_described else [{"name": name} for name in _names(outputs)]
    if fields:
        root["parameters"] = fields
    return read_document(root, max_input_size_bytes)


def _names(outputs: Any) -> list[str]:
    """Outputs by name: one, several fields, or a list with commas."""
    entries = outputs if isinstance(outputs, list) else [] if outputs is None else [outputs]
    check_count("outputs", sum(str(entry).count(",") + 1 for entry in entries))
    return [name.strip() for entry in entries for name in str(entry).split(",") if name.strip()]


def _field_value(parts: list[FormPart], forms: Mapping[str, InputForm]) -> Any:
    name = parts[0].name
    if any(part.file_name is not None for part in parts):
        raise InvalidArgumentError(
            f"the form has a file in field '{name}', and the model has no such input; its inputs are: "
            f"{', '.join(forms)}"
        )
    values = [_value(_text(part)) for part in parts]
    value = values[0] if len(values) == 1 else values
    if isinstance(value, list):
        check_count(f"values in field '{name}'", len(value))
    return value


def _values(name: str, parts: list[FormPart]) -> list[Any]:
    """Numbers, one in each field or in a JSON list, however it is nested."""
    values: list[Any] = []
    for part in parts:
        value = _value(_text(part))
        if isinstance(value, str):
            raise InvalidArgumentError(f"field '{name}' of the form is an input with numbers, found '{value[:40]}'")
        values += _flat(value)
    return values


def _flat(value: Any) -> list[Any]:
    """Without calls of itself, since a list may be nested deeper than calls can be."""
    found: list[Any] = []
    open_lists = [iter([value])]
    while open_lists:
        for entry in open_lists[-1]:
            if isinstance(entry, list):
                open_lists.append(iter(entry))
                break
            found.append(entry)
        else:
            open_lists.pop()
    return found


def _value(text: str) -> Any:
    """What JSON has a number, a truth value or a list for; other texts as they are."""
    try:
        value = parse(text.encode())
    except InternalError:  # no JSON
        return text
    return value if isinstance(value, (bool, int, float, list)) else text


def _text(part: FormPart) -> str:
    try:
        return bytes(part.content).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"field '{part.name}' of the form is neither a file nor UTF-8 text: {error}"
        ) from None


def _not_made_of_files(name: str, form: InputForm) -> UnsupportedMediaError:
    return UnsupportedMediaError(
        f"input '{name}' is {form[0]} {list(form[1])}, and the configuration does not say how it is made of a file; "
        "declare the preprocessing of pictures with the parameter 'image_input', or send the tensor itself"
    )
