"""A PyTorch model's file: what kind it is, loading it, and what it says of its tensors."""

from __future__ import annotations

import importlib.util
import inspect
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, broken_file
from trireme.backends.compiled.tensor_spec import TensorSpec

DATATYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

Specs = tuple[list[TensorSpec], list[TensorSpec]]


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded model."""

    call: Callable[..., Any]
    argument_names: tuple[str, ...]
    """Of forward, in order; empty where the file does not keep them."""
    keyword_names: frozenset[str] = frozenset()
    """Those of them that are given by name."""
    optional_names: frozenset[str] = frozenset()
    """Those of them that forward can do without."""
    takes_more: bool = False
    """Whether forward takes arguments whose names are not known."""
    takes_dictionary: bool = False
    """Whether forward takes one dictionary of tensors."""
    result_count: int | None = None
    """How many results forward returns, where the file says so."""
    specs: Specs | None = None
    """What the file says of the tensors, in the order of forward."""


def is_archive(path: str) -> bool:
    """Whether the file is a program of torch.export, by its name or by what is in it."""
    return path.endswith(".pt2") or "archive_format" in _kinds(path)


def load_program(torch: Any, path: str, device: Any) -> Program:
    """The model on the device; raises ModelLoadError where the file is not one."""
    if not is_archive(path):
        return _load_script(torch, path, device)
    if _is_compiled(path):
        return _load_compiled(torch, path, device)
    program = _exported(torch, path)
    specs = _specs_of(program)
    try:
        if device.type != "cpu":
            program = importlib.import_module("torch.export.passes").move_to_device_pass(program, str(device))
        given = program.graph_signature.user_inputs
        names = tuple(str(name) for name in given)
        by_name = len((program.example_inputs or ((), {}))[1])
        return Program(
            program.module(),
            names,
            frozenset(names[len(names) - by_name :]),
            frozenset(str(name) for name in given if not isinstance(name, str)),  # constants of the program
            specs=specs,
        )
    except Exception as error:
        raise broken_file(path, "a program of torch.export", error) from error


def load_class(torch: Any, path: str, weights: str, device: Any) -> Program:
    """The one `torch.nn.Module` that a model.py defines, with the state dictionary of a model.pt beside it, if any."""
    spec = importlib.util.spec_from_file_location("served_pytorch_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    if not found:
        raise ModelLoadError(f"'{path}' defines no subclass of torch.nn.Module")
    model = found[-1]()  # the last: those before it are its layers
    if os.path.isfile(weights):
        try:
            model.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
        except Exception as error:
            raise broken_file(weights, f"the weights of '{found[-1].__name__}'", error) from error
    model.to(device).eval()
    code = model.forward.__func__.__code__
    names = code.co_varnames[1 : code.co_argcount]
    optional = names[len(names) - len(model.forward.__func__.__defaults__ or ()) :]
    takes_more = bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
    return Program(model, names, frozenset(names), frozenset(optional), takes_more)


def exported_specs(torch: Any, path: str) -> Specs | None:
    """Inputs and outputs of an exported program; None for a compiled package, which keeps no shapes."""
    if _is_compiled(path):
        return None
    return _specs_of(_exported(torch, path))


def _specs_of(program: Any) -> Specs:
    signature = program.graph_signature
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [_spec(name, values.get(name)) for name in signature.user_inputs if isinstance(name, str)]
    outputs = [_spec(f"OUTPUT__{index}", values.get(name)) for index, name in enumerate(signature.user_outputs)]
    return inputs, outputs


def _spec(name: str, value: Any) -> TensorSpec:
    datatype = DATATYPES.get(str(getattr(value, "dtype", None)).removeprefix("torch."))
    if datatype is None:
        raise ModelLoadError(f"'{name}' of the exported program is not a tensor that a request can carry")
    return TensorSpec(name, datatype, tuple(dim if type(dim) is int else -1 for dim in value.shape))


def _exported(torch: Any, path: str) -> Any:
    try:
        return torch.export.load(path)
    except Exception as error:
        raise broken_file(path, "a program of torch.export", error) from error


def _load_script(torch: Any, path: str, device: Any) -> Program:
    try:
        script = torch.jit.load(path, map_location=device)
    except Exception as error:
        kind = "a TorchScript model"
        if "data.pkl" in _kinds(path) and "code" not in _kinds(path):
            kind += " (it is a file of torch.save, which holds no program; use torch.jit.script or torch.export)"
        raise broken_file(path, kind, error) from error
    script.eval()
    schema = script.forward.schema
    arguments = schema.arguments[1:]
    names = tuple(argument.name for argument in arguments)
    return Program(
        script,
        names,
        frozenset(names),
        frozenset(argument.name for argument in arguments if argument.has_default_value()),
        takes_dictionary=len(names) == 1 and str(arguments[0].type).startswith("Dict"),
        result_count=_result_count(schema.returns[0].type),
    )


def _result_count(returned: Any) -> int | None:
    """None for a list or a dictionary, whose length only a call shows."""
    kind = returned.kind()
    if kind == "TupleType":
        return len(returned.elements())
    return 1 if kind == "TensorType" else None


def _load_compiled(torch: Any, path: str, device: Any) -> Program:
    """A package of AOTInductor: machine code for one kind of device."""
    inductor = importlib.import_module("torch._inductor")
    try:
        index = device.index if device.type == "cuda" else -1
        return Program(inductor.aoti_load_package(path, device_index=index), (), takes_more=True)
    except Exception as error:
        raise broken_file(path, "a package of AOTInductor", error) from error


def _is_compiled(path: str) -> bool:
    return "aotinductor" in _kinds(path)


def _kinds(path: str) -> set[str]:
    """The names of the folders and files that an archive is made of, one level below its first folder and two."""
    if not os.path.isfile(path) or not zipfile.is_zipfile(path):
        return set()
    with zipfile.ZipFile(path) as archive:
        return {part for name in archive.namelist() for part in name.split("/")[1:3]}
