"""The request that a command line describes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trireme.core.datatype import NUMPY_DTYPE, WIRE_NAMES, Parameter
from trireme.core.reading.json_levels import read_json
from trireme.core.tensor import Tensor
from trireme.tools.client.errors import InputError
from trireme.tools.client.messages import InferCall
from trireme.tools.client.model import ServedModel, nearest
from trireme.tools.infer.description import main_input
from trireme.tools.infer.files import read_text, values_of_file
from trireme.tools.infer.values import Shape, tensor_of, values_of_text
from trireme.tools.perf.model import TensorSpec

_NAME = re.compile(r"[\w.:/-]+")
_STREAM = "stream"


@dataclass(frozen=True, slots=True)
class GivenRequest:
    """The words of the command line that say what to send."""

    values: Sequence[str] = ()
    """`NAME=VALUE`, `NAME=@FILE`, or for the model's main input without a name."""
    data: str | None = None
    """A JSON document, or @FILE."""
    shapes: Sequence[str] = ()
    parameters: Sequence[str] = ()
    outputs: Sequence[str] = ()
    is_streamed: bool = True
    """A model that streams on request is asked to."""

    @property
    def is_empty(self) -> bool:
        return not self.values and self.data is None


def build_call(model: ServedModel, given: GivenRequest) -> InferCall:
    """The request; raises InputError."""
    specs = {spec.name: spec for spec in model.inputs}
    shapes = {name: _shape(text) for name, text in map(_pair, given.shapes)}
    for name in shapes:
        _known(specs, name)
    tensors: dict[str, Tensor] = {}
    parameters: dict[str, Parameter] = {}
    outputs = list(given.outputs)
    if given.data is not None:
        document = _document(given.data)
        tensors, parameters = _of_document(model, document, shapes)
        outputs = outputs or _outputs_in(document)
    for word in given.values:
        spec, text = _named(model, specs, word)
        tensors[spec.name] = tensor_of(model, spec, _values(spec, text), shapes.get(spec.name))
    parameters |= {name: _parameter(text) for name, text in map(_pair, given.parameters)}
    if given.is_streamed and model.is_decoupled and _STREAM not in tensors:
        stream_spec = specs.get(_STREAM)
        if stream_spec is not None and stream_spec.datatype == "BOOL" and stream_spec.is_optional:
            tensors[_STREAM] = tensor_of(model, stream_spec, True, None)
    _check_outputs(model, outputs)
    _check_complete(model, tensors)
    return InferCall(model.name, model.version, tuple(tensors.values()), parameters, tuple(outputs))


def _named(model: ServedModel, specs: dict[str, TensorSpec], word: str) -> tuple[TensorSpec, str]:
    name, separator, text = word.partition("=")
    if separator and (name in specs or _NAME.fullmatch(name)):
        return _known(specs, name), text
    spec = main_input(model)
    if spec is None:
        raise InputError(f"say for which input '{word[:40]}' is: NAME=VALUE, with one of {', '.join(specs)}")
    return spec, word


def _values(spec: TensorSpec, text: str) -> Any:
    if text.startswith("@@"):
        return values_of_text(spec, text[1:])
    return values_of_file(spec, text[1:]) if text.startswith("@") else values_of_text(spec, text)


def _known(specs: dict[str, TensorSpec], name: str) -> TensorSpec:
    if name not in specs:
        raise InputError(f"the model has no input '{name}'{nearest(name, specs)}")
    return specs[name]


def _document(text: str) -> dict[str, Any]:
    content = read_text(text[1:]) if text.startswith("@") else text
    try:
        found = read_json(content)
    except ValueError as error:
        raise InputError(f"what --data gives is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError('what --data gives is no object: {"NAME": value} or {"inputs": [...]}')
    return found


def _of_document(
    model: ServedModel, document: dict[str, Any], shapes: dict[str, Shape]
) -> tuple[dict[str, Tensor], dict[str, Parameter]]:
    """An infer request, or the flat form of generate, where what is no input is a parameter."""
    specs = {spec.name: spec for spec in model.inputs}
    if isinstance(document.get("inputs"), list):
        tensors = {}
        for entry in document["inputs"]:
            tensor = _of_entry(model, specs, entry, shapes)
            tensors[tensor.name] = tensor
        return tensors, _parameters_in(document)
    tensors = {
        name: tensor_of(model, specs[name], value, shapes.get(name))
        for name, value in document.items()
        if name in specs
    }
    return tensors, {name: _scalar(name, value) for name, value in document.items() if name not in specs}


def _of_entry(model: ServedModel, specs: dict[str, TensorSpec], entry: Any, shapes: dict[str, Shape]) -> Tensor:
    if not isinstance(entry, dict) or "name" not in entry or "data" not in entry:
        raise InputError("each of the inputs in --data needs at least a name and data")
    spec = _known(specs, str(entry["name"]))
    datatype = entry.get("datatype", spec.datatype)
    if not isinstance(datatype, str) or datatype not in WIRE_NAMES:
        close = nearest(str(datatype), NUMPY_DTYPE)
        raise InputError(f"input '{spec.name}' has the unknown datatype '{datatype}'{close}")
    shape = shapes.get(spec.name) or _shape_in(spec, entry)
    return tensor_of(model, TensorSpec(spec.name, datatype, spec.shape), entry["data"], shape)


def _shape_in(spec: TensorSpec, entry: dict[str, Any]) -> Shape | None:
    shape = entry.get("shape")
    if shape is not None and not (isinstance(shape, list) and all(type(dim) is int for dim in shape)):
        raise InputError(f"the shape of input '{spec.name}' in --data is a list of whole numbers, such as [1, 3]")
    return None if shape is None else tuple(shape)


def _outputs_in(document: dict[str, Any]) -> list[str]:
    entries = document.get("outputs", []) if isinstance(document.get("inputs"), list) else []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "name" in entry for entry in entries):
        raise InputError('the outputs in --data are a list of objects with names: [{"name": "..."}]')
    return [str(entry["name"]) for entry in entries]


def _parameters_in(document: dict[str, Any]) -> dict[str, Parameter]:
    parameters = document.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InputError('the parameters in --data are an object: {"NAME": value}')
    for name, value in parameters.items():
        if not isinstance(value, (bool, int, float, str)):
            raise InputError(f"parameter '{name}' in --data is no single value")
    return dict(parameters)


def _scalar(name: str, value: Any) -> Parameter:
    if isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(f"the model has no input '{name}', and a parameter is a single value")


def _parameter(text: str) -> Parameter:
    try:
        value = read_json(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text


def _pair(word: str) -> tuple[str, str]:
    name, separator, text = word.partition("=")
    if not separator or not name:
        raise InputError(f"'{word}' is not of the form NAME=VALUE")
    return name, text


def _shape(text: str) -> Shape:
    try:
        return tuple(int(word) for word in re.split(r"[\s,x]+", text.strip("[] ")) if word)
    except ValueError:
        raise InputError(f"'{text}' is no shape, such as 1,3,224,224") from None


def _check_outputs(model: ServedModel, outputs: Sequence[str]) -> None:
    known = [spec.name for spec in model.outputs]
    for name in outputs:
        if known and name not in known:
            raise InputError(f"the model has no output '{name}'{nearest(name, known)}")


def _check_complete(model: ServedModel, tensors: dict[str, Tensor]) -> None:
    missing = [spec for spec in model.inputs if not spec.is_optional and spec.name not in tensors]
    if missing:
        told = ", ".join(f"'{spec.name}' ({spec.datatype} {list(model.full_shape(spec))})" for spec in missing)
        raise InputError(
            f"{'inputs are' if len(missing) > 1 else 'an input is'} missing: {told}\n"
            f"'trireme infer {model.name}' shows what the model takes"
        )
