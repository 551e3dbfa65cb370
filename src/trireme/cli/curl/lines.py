"""Commands to paste into a terminal: for each model one `curl` line with sample values for its inputs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from trireme.cli.curl.samples import file_of, sample_inputs, sample_text
from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.config.picture_parameters import INPUT as IMAGE_INPUT
from trireme.core.datatype import BYTES
from trireme.core.elements import element_count

_LONGEST_LIST = 16
"""Elements that are written out; a longer input is made by a line of Python."""
_LANGUAGE_MODELS = "llm"
"""The backend whose inputs are all optional, and which chats."""
_BINARY_ONLY = ("FP16", "BF16")
"""Datatypes that JSON does not carry."""


def curl_lines(base_url: str, models: Sequence[ModelConfig]) -> list[str]:
    """The lines for all models, in their order; `base_url` is `host:port`."""
    return [line for model in models for line in _model_lines(base_url, model)]


def _model_lines(base_url: str, model: ModelConfig) -> list[str]:
    url = f"{base_url}/v2/models/{quote(model.name, safe='')}"
    if model.backend == _LANGUAGE_MODELS:
        return _language_model_lines(base_url, url, model.name)
    inputs = sample_inputs(model)
    picture = model.parameters.get(IMAGE_INPUT, "")
    if [tensor.name for tensor in inputs] == [picture]:
        start = f"curl -N {url}/generate_stream" if model.is_decoupled else f"curl {url}/infer"
        return [f"{start} -F {shlex.quote(picture)}=@picture.jpg  # with a file of yours for picture.jpg"]
    binary = next((tensor for tensor in inputs if tensor.datatype in _BINARY_ONLY), None)
    if binary is not None:
        return [
            f"# {model.name}: input {binary.name} is {binary.datatype}, which JSON cannot carry; use a client library"
        ]
    file = file_of(model, inputs)
    if file is not None:
        return [_file_line(url, model, inputs, *file)]
    is_small = all(element_count(_sample_shape(tensor, model)) <= _LONGEST_LIST for tensor in inputs)
    if model.is_decoupled:
        if not is_small:
            return [f"# {model.name}: its inputs are too long for a command line; use a client library"]
        return [f"curl -N {url}/generate_stream -d {_quoted(_generate_body(model, inputs))}"]
    lines = [_infer_line(url, model, inputs, is_small)]
    if is_small and _is_text_to_text(model):
        lines.append(f"curl {url}/generate -d {_quoted(_generate_body(model, inputs))}")
    return lines


def _language_model_lines(base_url: str, url: str, name: str) -> list[str]:
    text = {"text_input": "Once upon a time", "max_tokens": 40, "temperature": 0.7, "seed": 1}
    chat = {"model": name, "messages": [{"role": "user", "content": "Who are you?"}]}
    return [
        f"curl -N {url}/generate_stream -d {_quoted(text)}",
        f"curl {base_url}/v1/chat/completions -d {_quoted(chat)}",
    ]


def _file_line(url: str, model: ModelConfig, inputs: Sequence[TensorConfig], name: str, file: str) -> str:
    others = _generate_body(model, [tensor for tensor in inputs if tensor.name != name])
    content = f'"{name}": "\'$(base64 -w0 {file})\'"'
    rest = json.dumps(others)[1:-1].replace("'", "'\\''")
    body = f"'{{{content}{', ' if rest else ''}{rest}}}'"
    call = f"curl -N {url}/generate_stream" if model.is_decoupled else f"curl {url}/generate"
    return f"echo {body} | {call} -d @-  # with a file of yours for {file}"


def _is_text_to_text(model: ModelConfig) -> bool:
    return all(
        any(tensor.datatype == BYTES for tensor in tensors)
        for tensors in (model.inputs.values(), model.outputs.values())
    )


def _infer_line(url: str, model: ModelConfig, inputs: Sequence[TensorConfig], is_small: bool) -> str:
    if is_small:
        return f"curl {url}/infer -d {_quoted(_infer_body(model, inputs))}"
    entries = ", ".join(_python_entry(model, tensor) for tensor in inputs)
    program = f'import json; print(json.dumps({{"inputs": [{entries}]}}))'
    return f"python3 -c {shlex.quote(program)} | curl {url}/infer -d @-"


def _infer_body(model: ModelConfig, inputs: Sequence[TensorConfig]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if model.message is not None and model.message.HasField("sequence_batching"):
        body["parameters"] = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
    body["inputs"] = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": _sample_shape(tensor, model),
            "data": _sample_values(model, tensor, element_count(_sample_shape(tensor, model))),
        }
        for tensor in inputs
    ]
    return body


def _generate_body(model: ModelConfig, inputs: Sequence[TensorConfig]) -> dict[str, Any]:
    body = {}
    for tensor in inputs:
        values = _sample_values(model, tensor, element_count(_sample_shape(tensor, model)))
        body[tensor.name] = values[0] if len(values) == 1 else values
    return body


def _sample_shape(tensor: TensorConfig, model: ModelConfig) -> list[int]:
    """The declared shape with 1 for whatever is variable, behind a batch of 1 where the model has batches."""
    dims = [1 if dim < 0 else dim for dim in tensor.dims]
    return [1, *dims] if model.max_batch_size > 0 else dims


def _sample_values(model: ModelConfig, tensor: TensorConfig, count: int) -> list[Any]:
    if tensor.datatype == BYTES:
        return [sample_text(model, tensor)] * count
    if tensor.datatype == "BOOL":
        return [True] * count
    if tensor.datatype.startswith("FP"):
        return [float(number) for number in range(1, count + 1)]
    return list(range(1, count + 1))


def _python_entry(model: ModelConfig, tensor: TensorConfig) -> str:
    shape = _sample_shape(tensor, model)
    value = json.dumps(_sample_values(model, tensor, 1)[0]).replace("true", "True")
    head = json.dumps({"name": tensor.name, "datatype": tensor.datatype, "shape": shape})
    return f'{head[:-1]}, "data": [{value}] * {element_count(shape)}}}'


def _quoted(body: dict[str, Any]) -> str:
    return shlex.quote(json.dumps(body))
