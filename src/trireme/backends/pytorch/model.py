"""The pytorch backend: a TorchScript file, or a program of torch.export, executed by PyTorch."""

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
    default_max_batch_size,
    model_path,
    require,
    thread_share,
)
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.tensor_spec import complete_config
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.pytorch.arguments import check_tensors, input_order, output_order
from trireme.backends.pytorch.program import DATATYPES, Program, exported_specs, is_archive, load_class, load_program

_FILE_NAMES = ("model.pt", "model.pt2")
_WITHOUT_EFFECT = {
    "ENABLE_WEIGHT_SHARING": "every instance is a process of its own",
    "ENABLE_JIT_EXECUTOR": "PyTorch's own choice is kept",
    "TORCH_COMPILE_OPTIONAL_PARAMETERS": "the model is not compiled",
    "ENABLE_JIT_PROFILING": "PyTorch's own choice is kept",
}


class TritonPythonModel:
    """One instance of a PyTorch model."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in what an exported program says of its tensors; a TorchScript file says nothing of them."""
        form = config.as_dict()
        path = _source_path(form) or model_path(form, *_FILE_NAMES)
        if is_archive(path):
            specs = exported_specs(require("torch", "pytorch"), path)
            if specs is not None:
                return complete_config(config, *specs, default_max_batch_size())
        if not form.get("input") or not form.get("output"):
            raise ModelLoadError(
                f"the configuration of model '{form['name']}' must list its inputs and outputs: '{path}' does not say "
                "what they are. Name them INPUT__0, INPUT__1 and OUTPUT__0, OUTPUT__1 in the order of forward"
            )
        return config

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the program on the instance's device."""
        torch = self._torch = require("torch", "pytorch")
        config = json.loads(args["model_config"])
        parameters = Parameters(config)
        _set_threads(torch, parameters)
        self._device = _device(torch, config["name"], args["model_instance_kind"], args["model_instance_device_id"])
        self._set_modes(parameters)
        parameters.warn_of_rest("pytorch", _WITHOUT_EFFECT)
        self._program = _load(torch, config, self._device)
        self._arguments = input_order(config, self._program)
        self._results = output_order(config)
        check_tensors(config, self._program, self._arguments, self._results)
        self._types = {entry["name"]: entry["data_type"] for entry in config["input"]}
        states = config.get("sequence_batching", {}).get("state", ())
        self._output_types = {state["output_name"]: state["data_type"] for state in states}
        self._output_types |= {entry["name"]: entry["data_type"] for entry in config["output"]}
        self._has_batch_dim = config["max_batch_size"] > 0

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Runs the program once where the shapes of the requests allow it."""
        with self._without_gradients():
            return run_batch(requests, self._run, is_batching=self._has_batch_dim)

    def finalize(self) -> None:
        """Gives the device's memory back."""
        del self._program
        if self._device.type == "cuda":
            self._torch.cuda.empty_cache()

    def _set_modes(self, parameters: Parameters) -> None:
        torch = self._torch
        is_inference = parameters.flag("INFERENCE_MODE")
        self._without_gradients = torch.no_grad if is_inference is False else torch.inference_mode
        self._cleans_cache = bool(parameters.flag("ENABLE_CACHE_CLEANING"))
        if parameters.flag("DISABLE_CUDNN"):
            torch.backends.cudnn.enabled = False
        if parameters.flag("DISABLE_OPTIMIZED_EXECUTION"):
            torch._C._jit_set_profiling_executor(False)
            torch._C._set_graph_executor_optimize(False)
        fuser = parameters.flag("ENABLE_TENSOR_FUSER")
        if fuser is not None:
            torch._C._jit_set_texpr_fuser_enabled(fuser)

    def _run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        order = self._arguments
        given: list[Any] = [self._tensor(name, arrays[name]) for name in order.positional if name in arrays]
        named = {key: self._tensor(name, arrays[name]) for key, name in order.named.items() if name in arrays}
        if order.in_dictionary:
            given = [{name: self._tensor(name, arrays[name]) for name in order.in_dictionary if name in arrays}]
        values = self._results.pick(self._program.call(*given, **named), wanted)
        results = {name: self._result(name, value) for name, value in values.items()}
        if self._cleans_cache and self._device.type == "cuda":
            self._torch.cuda.empty_cache()
        return results

    def _tensor(self, name: str, array: NDArray[Any]) -> Any:
        kind = self._types.get(name)
        if kind == "TYPE_STRING":
            if array.ndim > 1 + self._has_batch_dim or (array.ndim == 2 and array.shape[1] != 1):
                raise RequestError(f"input '{name}' of strings must be a list of them, its shape is {array.shape}")
            return [element if isinstance(element, str) else bytes(element).decode() for element in array.ravel()]
        tensor = self._torch.from_numpy(array if array.flags.writeable else array.copy())
        if kind == "TYPE_BF16":
            tensor = tensor.view(self._torch.bfloat16)
        return tensor.to(self._device)

    def _result(self, name: str, value: Any) -> Result:
        torch = self._torch
        if isinstance(value, torch.Tensor):
            self._check_type(name, DATATYPES.get(str(value.dtype).removeprefix("torch."), str(value.dtype)))
            tensor = value.detach().cpu().contiguous()
            if tensor.dtype == torch.bfloat16:
                return Result(tensor.view(torch.uint16).numpy(), is_bf16=True)
            return Result(tensor.numpy())
        if isinstance(value, (list, tuple)) and all(isinstance(element, str) for element in value):
            self._check_type(name, "STRING")
            array = np.array(value, dtype=np.object_)
            return Result(array.reshape(-1, 1) if self._has_batch_dim else array)
        if isinstance(value, (bool, int, float)):
            return self._result(name, torch.tensor(value))
        raise TypeError(f"output '{name}' of the model is neither a tensor nor a list of strings: {type(value)}")

    def _check_type(self, name: str, provided: str) -> None:
        expected = self._output_types[name]
        if expected != f"TYPE_{provided}":
            raise RequestError(
                f"configuration expects datatype {expected} for output '{name}', model provides TYPE_{provided}"
            )


def _source_path(config: Mapping[str, Any]) -> str | None:
    """The model.py of a model whose configuration says that it is Python code: `runtime: "model.py"`."""
    name = config.get("runtime") or ""
    return model_path({**config, "default_model_filename": name}) if name.endswith(".py") else None


def _load(torch: Any, config: Mapping[str, Any], device: Any) -> Program:
    source = _source_path(config)
    if source is None:
        return load_program(torch, model_path(config, *_FILE_NAMES), device)
    weights = config.get("default_model_filename") or _FILE_NAMES[0]
    return load_class(torch, source, os.path.join(os.path.dirname(source), weights), device)


def _set_threads(torch: Any, parameters: Parameters) -> None:
    intra = parameters.whole("INTRA_OP_THREAD_COUNT", "NUM_THREADS")
    torch.set_num_threads(intra or thread_share())
    inter = parameters.whole("INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS")
    try:
        torch.set_num_interop_threads(inter or 1)
    except RuntimeError as error:  # possible only until the first parallel work, which reading the file may have been
        if inter is not None:
            Logger.log_warn(f"the number of threads between operators stays as it is: {error}")


def _device(torch: Any, model: str, kind: str, device_id: str) -> Any:
    if kind != "GPU":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelLoadError(
            f"model '{model}' has an instance on a GPU, and this PyTorch ({torch.__version__}) finds none; install a "
            "build with CUDA, or use KIND_CPU"
        )
    return torch.device("cuda", int(device_id))
