"""Writes the model folder: config.pbtxt, the version folder, and a model.py where one is wanted."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from trireme.config.load import finalize_config
from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import ServingError
from trireme.tools.neuron_model.arguments import parse_arguments
from trireme.tools.neuron_model.config_text import config_text
from trireme.tools.neuron_model.options import ONNX, TENSORFLOW, BatchingOptions, NeuronModelError, NeuronModelOptions
from trireme.tools.neuron_model.saved_model import read_tensors

PYTHON_MODEL = '''"""Runs the compiled model that config.pbtxt names; add what goes before and after it."""

from trireme.models import NeuronModel


class TritonPythonModel(NeuronModel):
    def initialize(self, args):
        super().initialize(args)

    def execute(self, requests):
        return super().execute(requests)
'''


def run(arguments: Sequence[str], program: str) -> int:
    """One command line; the exit code."""
    try:
        options = parse_arguments(arguments, program)
        for line in generate(options):
            print(line)
    except SystemExit as ended:  # help, or a mistake that argparse has described
        return ended.code if isinstance(ended.code, int) else 1
    except (NeuronModelError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    return 0


def generate(options: NeuronModelOptions) -> list[str]:
    """Writes the folder; what to tell the user. Nothing is written where NeuronModelError is raised."""
    path, compiled_model = _located(options)
    if options.model_type == TENSORFLOW and not path.is_dir():
        raise NeuronModelError(f"--compiled_model '{path}' is not a folder, and a SavedModel is one")
    if options.model_type != TENSORFLOW and path.is_dir():
        raise NeuronModelError(f"--compiled_model '{path}' is a folder, and a {options.model_type} model is a file")
    if options.model_type == TENSORFLOW and not (options.inputs and options.outputs):
        inputs, outputs = read_tensors(str(path), options.tag_set, options.signature_key)
        options = dataclasses.replace(options, inputs=options.inputs or inputs, outputs=options.outputs or outputs)
    text = config_text(options, compiled_model)
    _check(options, text)
    version_dir = options.model_dir / str(options.version)
    version_dir.mkdir(parents=True, exist_ok=True)
    (options.model_dir / "config.pbtxt").write_text(text, encoding="utf-8")
    if options.writes_python_model:
        (version_dir / "model.py").write_text(PYTHON_MODEL, encoding="utf-8")
    return _summary(options, version_dir)


def _located(options: NeuronModelOptions) -> tuple[Path, str]:
    """The file, and its path for the configuration: from the model's folder where it is inside, so that the folder can
    be moved; absolute otherwise, because nobody knows where the server will be started."""
    folder = options.model_dir.absolute()
    given = Path(options.compiled_model)
    tried = [given.absolute(), folder / given, folder / str(options.version) / given]
    for path in dict.fromkeys(tried):
        if path.exists():
            return path, str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    places = ", nor ".join(f"'{path}'" for path in dict.fromkeys(tried))
    raise NeuronModelError(f"--compiled_model '{given}' is not there: there is no {places}")


def _check(options: NeuronModelOptions, text: str) -> None:
    """The server must be able to read what is written."""
    try:
        message = parse_text(text, str(options.model_dir / "config.pbtxt"))
        if message.input and message.output:
            finalize_config(message, 0)
    except ServingError as error:
        raise NeuronModelError(error.message) from error


def _summary(options: NeuronModelOptions, version_dir: Path) -> list[str]:
    lines = [f"Model {options.name}: {options.model_dir / 'config.pbtxt'} and {version_dir}/ are written."]
    lines += _core_lines(options)
    lines += _batching_lines(options.batching)
    if options.batching.max_batch_size and options.inputs and all(tensor.dims[0] == -1 for tensor in options.inputs):
        lines.append(
            "Note: with --max_batch_size the server adds the batch dimension to the shapes; if their first -1 is meant "
            "to be the batch, leave it out of --triton_input and --triton_output."
        )
    if options.model_type == ONNX and not (options.inputs and options.outputs):
        lines.append("Inputs and outputs: read from the file when the model loads.")
    return lines


def _core_lines(options: NeuronModelOptions) -> list[str]:
    cores = options.cores
    per_instance, idle = divmod(cores.count, options.instance_count)
    lines = [
        f"Cores: {cores.first} to {cores.last}; instances: {options.instance_count}, with {per_instance} cores each; "
        f"threads per core: {options.threads_per_core}."
    ]
    if idle:
        lines.append(f"Note: the instances get equal shares, so the last {idle} of the cores stay idle.")
    return lines


def _batching_lines(batching: BatchingOptions) -> list[str]:
    size = batching.max_batch_size
    lines = [f"Max batch size: {size or '0, the shapes are complete'}."]
    if batching.is_dynamic:
        preferred = "any" if batching.preferred_size is None else batching.preferred_size
        delay_us = batching.max_queue_delay_us or 0
        lines.append(f"Dynamic batching: on, preferred batch size {preferred}, longest delay {delay_us} us.")
    else:
        lines.append("Dynamic batching: off.")
        if batching.preferred_size is not None or batching.max_queue_delay_us is not None:
            lines.append("Note: without --enable_dynamic_batching, a preferred size and a delay have no effect.")
    calls = "one for all requests of a batch" if batching.joins_requests else "one for each request"
    return [*lines, f"Calls to the device: {calls}."]
