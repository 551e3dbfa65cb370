"""ONNX files as replicas: one session of ONNX Runtime, which many threads may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import Arrays, Result
from trireme.backends.compiled.model_load import ModelLoadError, broken_file, require
from trireme.backends.compiled.tensor_spec import TensorSpec
from trireme.backends.neuron.file_tensors import fixed_rows, names_in_file
from trireme.backends.neuron.load_plan import LoadedModel, LoadPlan
from trireme.core.datatype import BF16, BYTES, WIRE_NAMES

_DATATYPES = {
    "float": "FP32",
    "double": "FP64",
    "float16": "FP16",
    "bfloat16": BF16,
    "string": BYTES,
}
"""ONNX Runtime's element types; the others have the name of the wire, in small letters."""

Specs = tuple[list[TensorSpec], list[TensorSpec]]


def load(plan: LoadPlan) -> LoadedModel:
    """The model of the plan; raises ModelLoadError. ONNX Runtime does not know NeuronCores, so it runs on the CPU."""
    session = _open(plan.path, plan.intra_op_thread_count)
    known = [tensor.name for tensor in session.get_inputs()]
    inputs = names_in_file("input", [entry["name"] for entry in plan.config["input"]], known)
    outputs = names_in_file(
        "output",
        [entry["name"] for entry in plan.config["output"]],
        [tensor.name for tensor in session.get_outputs()],
    )

    def call(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        feeds = {inputs[name]: array for name, array in arrays.items()}
        values = session.run([outputs[name] for name in wanted], feeds)
        return {name: Result(np.asarray(value)) for name, value in zip(wanted, values, strict=True)}

    rows = fixed_rows([tensor.shape[0] if tensor.shape else None for tensor in session.get_inputs()])
    return LoadedModel([call] * plan.cpu_thread_count, "CPU", rows)


def specs(path: str) -> Specs:
    """What the file says of its inputs and outputs; raises ModelLoadError."""
    session = _open(path, 1)
    return [_spec(tensor) for tensor in session.get_inputs()], [_spec(tensor) for tensor in session.get_outputs()]


def _open(path: str, intra_op_thread_count: int) -> Any:
    ort = require("onnxruntime", "onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = intra_op_thread_count
    options.inter_op_num_threads = 1
    try:
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise broken_file(path, "an ONNX model", error) from error


def _spec(tensor: Any) -> TensorSpec:
    element = tensor.type.removeprefix("tensor(").removesuffix(")")
    datatype = _DATATYPES.get(element, element.upper())
    if datatype not in WIRE_NAMES:
        raise ModelLoadError(f"tensor '{tensor.name}' has the type '{tensor.type}', which no request can carry")
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in tensor.shape)
    return TensorSpec(tensor.name, datatype, shape)
