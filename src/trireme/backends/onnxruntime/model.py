"""The onnxruntime backend: a model.onnx, executed by ONNX Runtime."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import Arrays, RequestError, Result, run_batch
from trireme.backends.compiled.model_load import (
    ModelLoadError,
    broken_file,
    default_max_batch_size,
    model_path,
    require,
)
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.tensor_spec import TensorSpec, check_config, complete_config
from trireme.backends.onnxruntime.session_options import (
    check_providers,
    load_gpu_libraries,
    providers,
    session_options,
)
from trireme.backends.python.pb_utils import dlpack
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.core.datatype import BF16, BYTES

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": BF16,
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": BYTES,
    **{f"tensor({sign}int{bits})": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_ONNX_BFLOAT16 = 16  # TensorProto.DataType
_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_WITHOUT_EFFECT = {
    "share_session": "every instance is a process of its own",
    "enable-global-threadpool": "every instance is a process of its own",
}


class TritonPythonModel:
    """One instance of an ONNX model."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in what the graph says of its inputs and outputs."""
        ort = require("onnxruntime", "onnxruntime")
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # only to be looked at
        options.intra_op_num_threads = 1
        session = _open(ort, config.as_dict(), options, [("CPUExecutionProvider", {})])
        return complete_config(config, _inputs(session), _outputs(session), default_max_batch_size())

    def initialize(self, args: Mapping[str, str]) -> None:
        """Opens the session on the instance's device."""
        ort = self._ort = require("onnxruntime", "onnxruntime")
        config = json.loads(args["model_config"])
        parameters = Parameters(config)
        options = session_options(ort, config, parameters)
        device_id = int(args["model_instance_device_id"])
        chosen = providers(ort, config, parameters, args["model_instance_kind"], device_id)
        self._run_options = _run_options(ort, parameters.text(_SHRINKAGE))
        parameters.warn_of_rest("onnxruntime", _WITHOUT_EFFECT)
        if args["model_instance_kind"] == "GPU":
            load_gpu_libraries(ort)
        self._session = _open(ort, config, options, chosen)
        check_providers(config["name"], chosen, self._session.get_providers(), args["model_instance_kind"])
        inputs, outputs = _inputs(self._session), _outputs(self._session)
        check_config(config, inputs, outputs)
        self._specs = {spec.name: spec for spec in inputs}
        self._output_types = {spec.name: spec.datatype for spec in outputs}
        self._is_batching = config["max_batch_size"] > 0
        has_bf16 = any(spec.datatype == BF16 for spec in (*inputs, *outputs))
        self._execute_arrays = self._run_values if has_bf16 else self._run

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Runs the session once where the shapes of the requests allow it."""
        return run_batch(requests, self._execute_arrays, is_batching=self._is_batching)

    def _run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        feeds = {name: self._fed(name, array) for name, array in arrays.items() if name in self._specs}
        values = self._session.run(wanted, feeds, self._run_options)
        return {name: Result(np.asarray(value)) for name, value in zip(wanted, values, strict=True)}

    def _run_values(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        """The same through ONNX Runtime's own values, which know bfloat16, as numpy does not."""
        values = {}
        for name, array in arrays.items():
            if self._specs[name].datatype == BF16:
                values[name] = self._ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BFLOAT16)
            else:
                values[name] = self._ort.OrtValue.ortvalue_from_numpy(self._fed(name, array))
        results = {}
        for name, value in zip(wanted, self._session.run_with_ort_values(wanted, values), strict=True):
            if self._output_types[name] == BF16:
                results[name] = Result(dlpack.read(value._ortvalue.to_dlpack())[1], is_bf16=True)
            else:
                results[name] = Result(value.numpy())
        return results

    def _fed(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        spec = self._specs[name]
        if spec.shape == () and array.size == 1:
            array = array.reshape(())
        return _as_text(name, array) if spec.datatype == BYTES else array


def _as_text(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """ONNX Runtime's strings are text."""
    texts = np.empty(array.size, dtype=np.object_)
    try:
        texts[:] = [element if isinstance(element, str) else bytes(element).decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise RequestError(f"an element of input '{name}' is not UTF-8 text, as ONNX strings are: {error}") from None
    return texts.reshape(array.shape)


def _open(ort: Any, config: Mapping[str, Any], options: Any, chosen: list[tuple[str, dict[str, str]]]) -> Any:
    path = model_path(config, "model.onnx")
    if os.path.isdir(path):  # with the tensors that it keeps outside
        path = os.path.join(path, "model.onnx")
        if not os.path.isfile(path):
            raise ModelLoadError(f"unable to find '{path}' for model '{config['name']}'")
    try:
        return ort.InferenceSession(path, options, providers=chosen)
    except Exception as error:
        raise broken_file(path, "an ONNX model", error) from error


def _inputs(session: Any) -> list[TensorSpec]:
    specs = []
    for is_optional, args in ((False, session.get_inputs()), (True, session.get_overridable_initializers())):
        for arg in args:
            if arg.type not in _DATATYPES:
                raise ModelLoadError(
                    f"input '{arg.name}' of the ONNX model has the type '{arg.type}', which no request has"
                )
            specs.append(TensorSpec(arg.name, _DATATYPES[arg.type], _shape(arg), is_optional))
    return specs


def _outputs(session: Any) -> list[TensorSpec]:
    """Those that are tensors; a model may have others, which no response can carry."""
    specs = []
    for arg in session.get_outputs():
        if arg.type in _DATATYPES:
            shape = _shape(arg) or None  # no dimensions: a single number, or nothing is known of them
            specs.append(TensorSpec(arg.name, _DATATYPES[arg.type], shape))
        else:
            Logger.log_warn(f"output '{arg.name}' of the ONNX model has the type '{arg.type}' and is left out")
    return specs


def _shape(arg: Any) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in arg.shape)


def _run_options(ort: Any, shrinkage: str | None) -> Any:
    if not shrinkage:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry(_SHRINKAGE, shrinkage)
    return options
