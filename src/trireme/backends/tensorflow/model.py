"""The tensorflow backend: a model.savedmodel folder, executed by TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import Arrays, Result, run_batch
from trireme.backends.compiled.model_load import (
    ModelLoadError,
    broken_file,
    default_max_batch_size,
    model_path,
    require,
    thread_share,
)
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.tensor_spec import TensorSpec, check_config, complete_config
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.core.datatype import BF16, BYTES

_DATATYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "half": "FP16",
    "bfloat16": BF16,
    "float32": "FP32",
    "float64": "FP64",
    "string": BYTES,
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_WITHOUT_EFFECT = {
    "TF_USE_PER_SESSION_THREADS": "every instance is a process of its own",
    "MAX_SESSION_SHARE_COUNT": "every instance is a process of its own",
}


class TritonPythonModel:
    """One instance of a SavedModel."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in what the signature says of its inputs and outputs."""
        tf = _framework(config.as_dict())
        parameters = Parameters(config.as_dict())
        _set_threads(tf, parameters)  # before anything runs, and for good: this process goes on as an instance
        _, function = _load(tf, config.as_dict(), parameters)
        return complete_config(config, _inputs(function), _outputs(function), default_max_batch_size())

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model on the instance's device."""
        config = json.loads(args["model_config"])
        tf = self._tf = _framework(config)
        parameters = Parameters(config)
        _set_threads(tf, parameters)
        self._device = _device(tf, args, config["name"])
        with tf.device(self._device):
            self._model, self._function = _load(tf, config, parameters)
        parameters.warn_of_rest("tensorflow", _WITHOUT_EFFECT)
        inputs, outputs = _inputs(self._function), _outputs(self._function)
        check_config(config, inputs, outputs)
        self._specs = {spec.name: spec for spec in inputs}
        self._is_batching = config["max_batch_size"] > 0

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Calls the signature once where the shapes of the requests allow it."""
        with self._tf.device(self._device):
            return run_batch(requests, self._run, is_batching=self._is_batching)

    def _run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        returned = self._function(**{name: self._tensor(name, array) for name, array in arrays.items()})
        return {name: self._result(returned[name]) for name in wanted}

    def _tensor(self, name: str, array: NDArray[Any]) -> Any:
        spec = self._specs[name]
        if spec.shape == () and array.size == 1:
            array = array.reshape(())
        tensor = self._tf.constant(array)
        return self._tf.bitcast(tensor, self._tf.bfloat16) if spec.datatype == BF16 else tensor

    def _result(self, value: Any) -> Result:
        if value.dtype == self._tf.bfloat16:
            return Result(self._tf.bitcast(value, self._tf.uint16).numpy(), is_bf16=True)
        return Result(np.asarray(value.numpy()))


def _framework(config: Mapping[str, Any]) -> Any:
    if config.get("platform") == "tensorflow_graphdef":
        raise ModelLoadError(
            f"model '{config['name']}' is a GraphDef, which TensorFlow 2 does not serve; convert it to a SavedModel "
            'with tf.compat.v1.saved_model, and set platform: "tensorflow_savedmodel"'
        )
    return require("tensorflow", "tensorflow")


def _load(tf: Any, config: Mapping[str, Any], parameters: Parameters) -> tuple[Any, Any]:
    """The model, which must be kept, and the function of its signature."""
    path = model_path(config, "model.savedmodel")
    tag = parameters.text("TF_GRAPH_TAG")
    try:
        model = tf.saved_model.load(path, tags=[tag] if tag else None)
    except Exception as error:
        raise broken_file(path, "a SavedModel", error) from error
    key = parameters.text("TF_SIGNATURE_DEF") or "serving_default"
    if key not in model.signatures:
        known = ", ".join(f"'{name}'" for name in model.signatures) or "none"
        raise ModelLoadError(f"'{path}' has no signature '{key}'; it has {known}: name one in TF_SIGNATURE_DEF")
    return model, model.signatures[key]


def _inputs(function: Any) -> list[TensorSpec]:
    return [_spec(name, value) for name, value in function.structured_input_signature[1].items()]


def _outputs(function: Any) -> list[TensorSpec]:
    return [_spec(name, value) for name, value in function.structured_outputs.items()]


def _spec(name: str, value: Any) -> TensorSpec:
    datatype = _DATATYPES.get(value.dtype.name)
    if datatype is None:
        raise ModelLoadError(f"tensor '{name}' has the type '{value.dtype.name}', which no request can carry")
    shape = None
    if value.shape.rank is not None:
        shape = tuple(-1 if dim is None else dim for dim in value.shape.as_list())
    return TensorSpec(name, datatype, shape)


def _set_threads(tf: Any, parameters: Parameters) -> None:
    intra = parameters.whole("TF_NUM_INTRA_THREADS") or thread_share()
    inter = parameters.whole("TF_NUM_INTER_THREADS") or 1
    threading = tf.config.threading
    if (threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()) != (intra, inter):
        threading.set_intra_op_parallelism_threads(intra)
        threading.set_inter_op_parallelism_threads(inter)


def _device(tf: Any, args: Mapping[str, str], model: str) -> str:
    if args["model_instance_kind"] != "GPU":
        return "/CPU:0"
    if not tf.config.list_physical_devices("GPU"):
        raise ModelLoadError(
            f"model '{model}' has an instance on a GPU, and TensorFlow finds none; install 'tensorflow[and-cuda]', or "
            "use KIND_CPU"
        )
    return f"/GPU:{args['model_instance_device_id']}"


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # errors and warnings, not how TensorFlow was built
