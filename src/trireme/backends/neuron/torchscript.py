"""TorchScript files as replicas: one loaded onto each NeuronCore, or one that the CPU's threads share."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from trireme.backends.compiled.batching import Arrays, Result
from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.neuron.load_plan import LoadedModel, LoadPlan, missing_library, neuron_library
from trireme.backends.neuron.replicas import RunReplica
from trireme.backends.pytorch.arguments import Results, input_order, output_order
from trireme.backends.pytorch.program import Program, load_program
from trireme.core.datatype import BF16, to_config

_LIBRARIES = ("torch_neuron", "torch_neuronx")
_OPERATORS = "neuron::"


def load(plan: LoadPlan, *, is_inf2: bool) -> LoadedModel:
    """The model of the plan; raises ModelLoadError."""
    torch = require("torch", "pytorch")
    libraries = _LIBRARIES[1:] if is_inf2 else _LIBRARIES
    library = neuron_library("a PyTorch model", libraries, is_required=plan.has_device)
    results = output_order(plan.config)
    if library is not None and plan.has_device:
        placement = importlib.import_module(f"{library.__name__}.experimental")
        calls = []
        for core in range(plan.share.count):
            with placement.neuron_cores_context(start_nc=core, nc_count=1):  # counted among the visible ones
                program = load_program(torch, plan.path, torch.device("cpu"))
            calls.append(_call(torch, program, plan, results))
        return LoadedModel(plan.replicate(calls), "NeuronCores")
    torch.set_num_threads(plan.intra_op_thread_count)
    program = _load_on_cpu(torch, plan.path, libraries)
    call = _call(torch, program, plan, results)
    # PyTorch lets go of the interpreter while it computes, so threads over one copy are as fast as copies.
    return LoadedModel([call] * plan.cpu_thread_count, "CPU")


def _load_on_cpu(torch: Any, path: str, libraries: Sequence[str]) -> Program:
    try:
        return load_program(torch, path, torch.device("cpu"))
    except ModelLoadError as error:
        if _OPERATORS not in str(error):
            raise
        what = f"'{path}' was compiled for NeuronCores and"
        raise ModelLoadError(missing_library(what, libraries)) from error


def _call(torch: Any, program: Program, plan: LoadPlan, places: Results) -> RunReplica:
    order = input_order(plan.config, program)
    bf16_names = {entry["name"] for entry in plan.config["input"] if entry["data_type"] == to_config(BF16)}

    def tensor(name: str, array: Any) -> Any:
        made = torch.from_numpy(array if array.flags.writeable else array.copy())
        return made.view(torch.bfloat16) if name in bf16_names else made

    def call(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        with torch.inference_mode():  # holds for one thread only
            given: list[Any] = [tensor(name, arrays[name]) for name in order.positional]
            named = {key: tensor(name, arrays[name]) for key, name in order.named.items()}
            if order.in_dictionary:
                given = [{name: tensor(name, arrays[name]) for name in order.in_dictionary}]
            values = places.pick(program.call(*given, **named), wanted)
            return {name: _result(torch, value) for name, value in values.items()}

    return call


def _result(torch: Any, value: Any) -> Result:
    if value.dtype == torch.bfloat16:
        return Result(value.detach().cpu().contiguous().view(torch.uint16).numpy(), is_bf16=True)
    return Result(value.detach().cpu().contiguous().numpy())
