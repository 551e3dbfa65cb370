"""The neuron backend: a compiled model on every NeuronCore of an instance, with each batch spread over them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import numpy as np

from trireme.backends.compiled.batching import Arrays, Result, run_batch
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.tensor_spec import complete_config
from trireme.backends.neuron import onnx_file, saved_model, torchscript
from trireme.backends.neuron.compiled_model import ONNX, TENSORFLOW, CompiledModel, find_model
from trireme.backends.neuron.cores import CoreShare, announce, core_share
from trireme.backends.neuron.load_plan import LoadedModel, LoadPlan, is_on_neuron_cores
from trireme.backends.neuron.replicas import Replicas
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.core.datatype import BF16, NUMPY_DTYPE, from_config
from trireme.devices.neuron import VISIBLE as VISIBLE_CORES


class TritonPythonModel:
    """One instance: a share of the model's cores, and the replicas on them."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in what an ONNX file says of its tensors, where the configuration does not; the batch size stays."""
        form = config.as_dict()
        if form.get("input") and form.get("output"):
            return config
        version_dir = pb_runtime.current().model_dir
        compiled = find_model(form, Parameters(form), os.path.dirname(version_dir))
        if compiled.kind != ONNX:
            raise ModelLoadError(
                f"the configuration of model '{form['name']}' must list its inputs and outputs: they are read from "
                "ONNX files only; 'trireme neuron-model' writes them"
            )
        inputs, outputs = onnx_file.specs(compiled.path)
        return complete_config(config, inputs, outputs, default_max_batch_size=0)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Tells the Neuron runtime its cores, then loads the model onto them."""
        config = json.loads(args["model_config"])
        parameters = Parameters(config)
        share = core_share(config, parameters, args["model_instance_name"], os.environ)
        compiled = find_model(config, parameters, args["model_repository"])
        announce(share, os.environ, is_tensorflow=compiled.kind == TENSORFLOW)
        plan = LoadPlan(compiled.path, config, share, is_on_neuron_cores())
        loaded = _load(compiled, plan, parameters)
        fixed_rows = parameters.whole("COMPILED_BATCH_SIZE", least=1) or loaded.fixed_rows
        self._replicas = Replicas(loaded.calls, fixed_rows)
        self._joins_requests = not parameters.flag("DISABLE_BATCH_REQUESTS_TO_NEURON")
        self._types = {entry["name"]: from_config(entry["data_type"]) for entry in config["output"]}
        parameters.text("device")  # has had its effect: the server placed this process by it
        parameters.warn_of_rest("neuron", {})
        _report(args, share, loaded)

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Runs all requests as one batch where their shapes allow it, or one by one where the model asks for that."""
        return run_batch(requests, self._run, is_batching=self._joins_requests)

    def finalize(self) -> None:
        """Ends the threads."""
        self._replicas.close()

    def _run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        results = self._replicas.run(arrays, wanted)
        return {name: _cast(result, self._types[name]) for name, result in results.items()}


def _load(compiled: CompiledModel, plan: LoadPlan, parameters: Parameters) -> LoadedModel:
    tag_set = parameters.text("TAG_SET") or "serve"
    signature_key = parameters.text("SIGNATURE_DEF_KEY") or "serving_default"
    is_inf2 = bool(parameters.flag("INF2"))
    if compiled.kind == TENSORFLOW:
        return saved_model.load(plan, tag_set, signature_key)
    if compiled.kind == ONNX:
        return onnx_file.load(plan)
    return torchscript.load(plan, is_inf2=is_inf2)


def _cast(result: Result, datatype: str) -> Result:
    """As the configuration declares it: compiled models often answer with another precision."""
    if datatype == BF16:
        if result.is_bf16:
            return result
        bits = np.ascontiguousarray(result.array, dtype=np.float32).view(np.uint32)
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, halves to even
        return Result((rounded >> 16).astype(np.uint16), is_bf16=True)
    array = result.array
    if result.is_bf16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    wanted = NUMPY_DTYPE.get(datatype)
    return Result(array if wanted is None else array.astype(wanted, copy=False))


def _report(args: Mapping[str, str], share: CoreShare, loaded: LoadedModel) -> None:
    instance, visible = args["model_instance_name"], os.environ[VISIBLE_CORES]
    Logger.log_info(f"instance {instance} has NeuronCores {visible} ({VISIBLE_CORES}), {share.replica_count} replicas")
    if loaded.device == "CPU" and instance.endswith("_0"):  # one instance says it for all
        Logger.log_warn(
            f"model '{args['model_name']}' does not run on NeuronCores here: its replicas run on the CPU, "
            f"{len(loaded.calls)} at a time, and share one copy of the model"
        )
