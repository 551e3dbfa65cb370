"""The openvino backend: a model.xml with its model.bin, or an ONNX file, executed by OpenVINO."""

from __future__ import annotations

import json
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
    thread_share,
)
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.tensor_spec import TensorSpec, check_config, complete_config
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.core.datatype import BF16, BYTES

_FILE_NAMES = ("model.xml", "model.onnx")
_DATATYPES = {
    "boolean": "BOOL",
    "f16": "FP16",
    "bf16": BF16,
    "f32": "FP32",
    "f64": "FP64",
    "string": BYTES,
    **{f"{sign}{bits}": f"{kind}{bits}" for sign, kind in (("i", "INT"), ("u", "UINT")) for bits in (8, 16, 32, 64)},
}
_PROPERTIES = {
    "INFERENCE_PRECISION": "INFERENCE_PRECISION_HINT",
    "INFERENCE_PRECISION_HINT": "INFERENCE_PRECISION_HINT",
    "NUM_STREAMS": "NUM_STREAMS",
    "PERFORMANCE_HINT": "PERFORMANCE_HINT",
    "SCHEDULING_CORE_TYPE": "SCHEDULING_CORE_TYPE",
    "ENABLE_HYPER_THREADING": "ENABLE_HYPER_THREADING",
}
"""Parameters that are passed on to OpenVINO, under its name for them."""
_WITHOUT_EFFECT = {
    "ENABLE_BATCH_PADDING": "a batch has the size that it has",
    "RESHAPE_IO_LAYERS": "variable dimensions are kept as they are",
    "SKIP_OV_DYNAMIC_BATCHSIZE": "the batch dimension is made variable only where max_batch_size asks for it",
}


class TritonPythonModel:
    """One instance of a model."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in what the model says of its inputs and outputs."""
        ov = require("openvino", "openvino")
        model = _read(ov.Core(), config.as_dict())
        return complete_config(config, _specs(model.inputs), _specs(model.outputs), default_max_batch_size())

    def initialize(self, args: Mapping[str, str]) -> None:
        """Compiles the model for the instance's device."""
        ov = self._ov = require("openvino", "openvino")
        config = json.loads(args["model_config"])
        parameters = Parameters(config)
        core = ov.Core()
        extension = parameters.text("CPU_EXTENSION_PATH")
        if extension:
            core.add_extension(extension)
        device = parameters.text("TARGET_DEVICE") or _device(args, core, config["name"])
        properties = _properties(parameters)
        parameters.warn_of_rest("openvino", _WITHOUT_EFFECT)
        model = _read(core, config)
        inputs, outputs = _specs(model.inputs), _specs(model.outputs)
        check_config(config, inputs, outputs)
        self._specs = {spec.name: spec for spec in inputs}
        self._ports = {spec.name: (place, spec) for place, spec in enumerate(outputs)}
        self._input_places = {spec.name: place for place, spec in enumerate(inputs)}
        self._is_batching = config["max_batch_size"] > 0
        try:
            self._request = core.compile_model(model, device, properties).create_infer_request()
        except Exception as error:
            raise ModelLoadError(f"model '{config['name']}' could not be compiled for '{device}': {error}") from error

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Runs the model once where the shapes of the requests allow it."""
        return run_batch(requests, self._run, is_batching=self._is_batching)

    def _run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        given = {self._input_places[name]: self._tensor(name, array) for name, array in arrays.items()}
        self._request.infer(given, share_inputs=True)
        results = {}
        for name in wanted:
            place, spec = self._ports[name]
            tensor = self._request.get_output_tensor(place)
            if spec.datatype == BYTES:
                results[name] = Result(np.array(tensor.bytes_data, dtype=np.object_))
            else:
                array = np.array(tensor.data)  # a copy: the next execution writes into the same memory
                is_bf16 = spec.datatype == BF16  # whose bits OpenVINO shows as if they were a float16
                results[name] = Result(array.view(np.uint16) if is_bf16 else array, is_bf16)
        return results

    def _tensor(self, name: str, array: NDArray[Any]) -> Any:
        spec = self._specs[name]
        if spec.shape == () and array.size == 1:
            array = array.reshape(())
        if spec.datatype == BYTES:
            return self._ov.Tensor(_as_bytes(name, array))
        if spec.datatype == BF16:
            return self._ov.Tensor(np.ascontiguousarray(array), self._ov.Shape(array.shape), self._ov.Type.bf16)
        return self._ov.Tensor(np.ascontiguousarray(array), shared_memory=True)


def _as_bytes(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """An array of byte strings, which in numpy cannot end with a null."""
    elements = [element.encode() if isinstance(element, str) else bytes(element) for element in array.ravel()]
    if any(element.endswith(b"\0") for element in elements):
        raise RequestError(f"an element of input '{name}' ends with a null character, which OpenVINO would drop")
    return np.array(elements, dtype=np.bytes_).reshape(array.shape)


def _read(core: Any, config: Mapping[str, Any]) -> Any:
    """The model, its batch dimension variable where the configuration batches."""
    path = model_path(config, *_FILE_NAMES)
    try:
        model = core.read_model(path)
    except Exception as error:
        raise broken_file(path, "a model of OpenVINO", error) from error
    if config.get("max_batch_size"):
        shapes = {}
        for place, port in enumerate(model.inputs):
            shape = port.partial_shape
            if shape.rank.is_static and len(shape) and not shape[0].is_dynamic:
                shape[0] = -1
                shapes[place] = shape
        if shapes:
            try:
                model.reshape(shapes)
            except Exception as error:
                raise ModelLoadError(
                    f"model '{config['name']}' has max_batch_size {config['max_batch_size']}, and the batch dimension "
                    f"of '{path}' cannot be changed: {error}"
                ) from error
    return model


def _specs(ports: Sequence[Any]) -> list[TensorSpec]:
    specs = []
    for port in ports:
        names = port.get_names()
        name = port.get_any_name() if names else port.get_node().get_friendly_name()
        datatype = _DATATYPES.get(port.element_type.get_type_name())
        if datatype is None:
            raise ModelLoadError(f"tensor '{name}' has the type '{port.element_type}', which no request can carry")
        shape = port.partial_shape
        dims = tuple(-1 if dim.is_dynamic else dim.get_length() for dim in shape) if shape.rank.is_static else None
        specs.append(TensorSpec(name, datatype, dims))
    return specs


def _properties(parameters: Parameters) -> dict[str, Any]:
    properties: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    threads = parameters.whole("INFERENCE_NUM_THREADS", "CPU_THREADS_NUM", least=1)
    properties["INFERENCE_NUM_THREADS"] = threads or thread_share()
    for name, key in _PROPERTIES.items():
        text = parameters.text(name)
        if text is not None:
            properties[key] = text
    return properties


def _device(args: Mapping[str, str], core: Any, model: str) -> str:
    if args["model_instance_kind"] != "GPU":
        return "CPU"
    wanted = f"GPU.{args['model_instance_device_id']}"
    available = list(core.available_devices)
    if "GPU" not in available and wanted not in available:
        raise ModelLoadError(
            f"model '{model}' has an instance on a GPU, and OpenVINO finds only {', '.join(available)} (it drives GPUs "
            "of Intel); use KIND_CPU"
        )
    return wanted if wanted in available else "GPU"
