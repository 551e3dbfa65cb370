"""The tensors of a SavedModel, read with TensorFlow where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from trireme.core.datatype import BYTES, WIRE_NAMES
from trireme.core.wording.extras import install_line
from trireme.tools.neuron_model.options import NeuronModelError, TensorOption

Tensors = tuple[tuple[TensorOption, ...], tuple[TensorOption, ...]]
_DATATYPES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "string": BYTES}


def read_tensors(path: str, tag_set: str, signature_key: str) -> Tensors:
    """Inputs and outputs of the signature; raises NeuronModelError."""
    try:
        tf = importlib.import_module("tensorflow")
    except ImportError:
        raise NeuronModelError(
            "reading the tensors of a SavedModel needs the package 'tensorflow', which is not installed; install it "
            f"with: {install_line('tensorflow')}, or give --triton_input and --triton_output"
        ) from None
    try:
        signatures = tf.saved_model.load(path, tags=tag_set.split(",")).signatures
    except Exception as error:
        raise NeuronModelError(f"'{path}' cannot be read as a SavedModel with the tags '{tag_set}': {error}") from error
    if signature_key not in signatures:
        known = ", ".join(map(repr, signatures)) or "none"
        raise NeuronModelError(f"'{path}' has no signature '{signature_key}'; it has {known}: use --signature_def_key")
    function = signatures[signature_key]
    return _tensors(function.structured_input_signature[1].items()), _tensors(function.structured_outputs.items())


def _tensors(entries: Iterable[tuple[str, Any]]) -> tuple[TensorOption, ...]:
    return tuple(_tensor(name, value) for name, value in entries)


def _tensor(name: str, value: Any) -> TensorOption:
    datatype = _DATATYPES.get(value.dtype.name, value.dtype.name.upper())
    if datatype not in WIRE_NAMES or value.shape.rank is None:
        raise NeuronModelError(
            f"tensor '{name}' of the SavedModel has the type '{value.dtype.name}' and the shape {value.shape}, which "
            "cannot be written down; give --triton_input and --triton_output"
        )
    return TensorOption(name, datatype, tuple(-1 if dim is None else dim for dim in value.shape.as_list()))
