"""The command line of `trireme neuron-model`: the flags of Triton's own generator for Inferentia, checked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trireme.config.options.flag_parser import FlagParser
from trireme.core.datatype import BYTES, WIRE_NAMES
from trireme.devices.neuron import MOST_CORES
from trireme.tools.neuron_model.options import (
    ONNX,
    PYTORCH,
    TENSORFLOW,
    BatchingOptions,
    CoreRange,
    NeuronModelError,
    NeuronModelOptions,
    TensorOption,
)

_RANGE = re.compile(r"(\d+):(\d+)")


def parse_arguments(arguments: Sequence[str], program: str) -> NeuronModelOptions:
    """The options of a command line; raises NeuronModelError, or SystemExit where argparse has said it all."""
    given = _parser(program).parse_args(arguments)
    model_dir = Path(given.triton_model_dir)
    if model_dir.name in ("", ".."):
        raise NeuronModelError(f"--triton_model_dir '{given.triton_model_dir}' has no last part to name the model by")
    inputs, outputs = _tensors("--triton_input", given.triton_input), _tensors("--triton_output", given.triton_output)
    if given.model_type == PYTORCH and not (inputs and outputs):
        raise NeuronModelError(
            "a PyTorch file does not say what its tensors are: give --triton_input and --triton_output, for example "
            "--triton_input input,FP32,-1x224x224x3"
        )
    cores = _core_range(given.neuron_core_range)
    if given.triton_model_instance_count > cores.count:
        raise NeuronModelError(
            f"--triton_model_instance_count {given.triton_model_instance_count} is more than the {cores.count} cores "
            f"of --neuron_core_range {given.neuron_core_range}: every instance needs at least one"
        )
    return NeuronModelOptions(
        model_type=given.model_type,
        compiled_model=given.compiled_model,
        model_dir=model_dir,
        cores=cores,
        inputs=inputs,
        outputs=outputs,
        batching=_batching(given),
        threads_per_core=given.threads_per_core,
        instance_count=given.triton_model_instance_count,
        version=given.model_version,
        tag_set=given.tag_set,
        signature_key=given.signature_def_key,
        compiled_batch_size=given.compiled_batch_size,
        is_inf2=given.inf2,
        writes_python_model=given.python_model,
    )


def _parser(program: str) -> argparse.ArgumentParser:
    parser = FlagParser(
        prog=program, description="Writes the folder of a model that is spread over NeuronCores.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--model_type", required=True, choices=[PYTORCH, TENSORFLOW, ONNX], help="what wrote the compiled model")
    add("--compiled_model", required=True, metavar="PATH", help="the .pt file, the SavedModel folder or the .onnx file")
    add("--triton_model_dir", required=True, metavar="DIR", help="the folder to write; its last part is the name")
    add("--neuron_core_range", required=True, metavar="A:B", help="NeuronCores A to B, shared out among the instances")
    for flag, what in (("--triton_input", "inputs"), ("--triton_output", "outputs")):
        about = f"{what}, -1 where a dimension varies; required for PyTorch, else read from the file"
        add(flag, action="append", nargs="*", metavar="NAME,TYPE,4x384", help=about)
    add("--model_version", type=_at_least(1), default=1, metavar="N", help="the version folder (default: 1)")
    add("--max_batch_size", type=_at_least(0), default=0, metavar="N", help="0 (default): shapes are complete")
    add("--enable_dynamic_batching", action="store_true", help="let the server join requests")
    add("--preferred_batch_size", type=_at_least(1), metavar="N", help="a multiple of the number of cores")
    add("--max_queue_delay_microseconds", type=_at_least(0), metavar="US", help="of the dynamic batcher")
    add("--disable_batch_requests_to_neuron", action="store_true", help="one call per request, not per batch")
    add("--threads_per_core", type=_at_least(1), default=1, metavar="N", help="calls at a time per core (default: 1)")
    add("--triton_model_instance_count", type=_at_least(1), default=1, metavar="N", help="processes (default: 1)")
    add("--tag_set", default="serve", metavar="TAGS", help="of a SavedModel (default: serve)")
    add("--signature_def_key", default="serving_default", metavar="KEY", help="of a SavedModel")
    add("--inf2", action="store_true", help="Inf2 or Trn1: torch_neuronx runs the model")
    add("--compiled_batch_size", type=_at_least(1), metavar="N", help="rows that the compiled model insists on")
    add("--python_model", action="store_true", help='write a model.py to edit, with backend: "python"')
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, found {value}")
        return value

    return whole_number


def _batching(given: argparse.Namespace) -> BatchingOptions:
    size, preferred = given.max_batch_size, given.preferred_batch_size
    if given.enable_dynamic_batching and size == 0:
        raise NeuronModelError(
            "--enable_dynamic_batching joins requests along a batch dimension: give --max_batch_size, and leave that "
            "dimension out of --triton_input and --triton_output"
        )
    if given.enable_dynamic_batching and preferred is not None and preferred > size:
        raise NeuronModelError(f"--preferred_batch_size {preferred} is more than --max_batch_size {size}")
    return BatchingOptions(
        max_batch_size=size,
        is_dynamic=given.enable_dynamic_batching,
        preferred_size=preferred,
        max_queue_delay_us=given.max_queue_delay_microseconds,
        joins_requests=not given.disable_batch_requests_to_neuron,
    )


def _core_range(text: str) -> CoreRange:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise NeuronModelError(f"--neuron_core_range must be the first and the last core, such as 0:15, found '{text}'")
    cores = CoreRange(int(match[1]), int(match[2]))
    if cores.last < cores.first:
        raise NeuronModelError(
            f"--neuron_core_range '{text}' ends before it begins; did you mean {match[2]}:{match[1]}?"
        )
    if cores.last >= MOST_CORES:
        raise NeuronModelError(
            f"--neuron_core_range '{text}' goes beyond core {MOST_CORES - 1}: no machine has so many"
        )
    return cores


def _tensors(flag: str, groups: Iterable[Sequence[str]] | None) -> tuple[TensorOption, ...]:
    tensors = [_tensor(flag, text) for group in groups or () for text in group]
    names = [tensor.name for tensor in tensors]
    for name in names:
        if names.count(name) > 1:
            raise NeuronModelError(f"{flag} names '{name}' twice")
    return tuple(tensors)


def _tensor(flag: str, text: str) -> TensorOption:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(parts):
        raise NeuronModelError(f"{flag} must be NAME,TYPE,SHAPE such as input,FP32,-1x224x224x3, found '{text}'")
    name, kind, shape = parts
    datatype = BYTES if kind.upper() == "STRING" else kind.upper().removeprefix("TYPE_")
    if datatype not in WIRE_NAMES:
        raise NeuronModelError(f"{flag} '{text}': there is no type '{kind}', only {', '.join(sorted(WIRE_NAMES))}")
    try:
        dims = tuple(int(dim) for dim in shape.lower().split("x"))
    except ValueError:
        raise NeuronModelError(
            f"{flag} '{text}': the shape '{shape}' must be numbers with x between them, such as 4x384"
        ) from None
    if any(dim == 0 or dim < -1 for dim in dims):
        raise NeuronModelError(f"{flag} '{text}': a dimension is at least 1, or -1 where it varies, found '{shape}'")
    return TensorOption(name, datatype, dims)
