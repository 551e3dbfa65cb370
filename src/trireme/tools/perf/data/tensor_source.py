"""Chooses where the tensors of requests come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trireme.core.datatype import BYTES
from trireme.core.elements import element_count, encode_bytes
from trireme.tools.perf.bounded_files import MOST_BYTES, read_bounded
from trireme.tools.perf.data.generated import generated_tensors, known_shape
from trireme.tools.perf.data.json_files import read_streams
from trireme.tools.perf.data.tensors import Dataset, InputTensor, Step, tensor_bytes
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import ModelDescription, TensorSpec
from trireme.tools.perf.options import InputOptions

_PREFIX = "error: Failed to init manager inputs: "


def load_dataset(model: ModelDescription, options: InputOptions, seed: int) -> Dataset:
    """The steps to send; raises PerfError."""
    try:
        if options.sources in (("random",), ("zero",)):
            tensors = generated_tensors(model.inputs, options, np.random.default_rng(seed))
            return Dataset(((Step(tensors),),), is_given=False)
        if len(options.sources) == 1 and Path(options.sources[0]).is_dir():
            return Dataset(((_from_folder(Path(options.sources[0]), model, options),),), is_given=True)
        streams = [stream for path in options.sources for stream in read_streams(path, model, options.shapes)]
    except PerfError as error:
        raise PerfError(f"{_PREFIX}{error}\n", error.exit_code) from None
    if not model.is_sequence:
        streams = [tuple(step for stream in streams for step in stream)]
    return Dataset(tuple(streams), is_given=True)


def _from_folder(folder: Path, model: ModelDescription, options: InputOptions) -> Step:
    """A file for each input, named like it: raw values, or a string per line."""
    tensors = []
    for spec in model.inputs:
        path = folder / spec.name
        if not path.is_file():
            if spec.is_optional:
                continue
            raise PerfError(f"failed to read file for input {spec.name}: there is no '{path}'")
        shape = known_shape(spec, options.shapes)
        content = _content(path, spec, tensor_bytes(spec.datatype, shape))
        if spec.datatype == BYTES:
            lines = content.split(b"\n")
            lines = lines[:-1] if lines[-1] == b"" else lines
            if len(lines) != element_count(shape):
                raise PerfError(
                    f"provided data for input {spec.name} has {len(lines)} strings, expect {element_count(shape)}"
                )
            content = encode_bytes(lines)
        tensors.append(InputTensor(spec.name, spec.datatype, shape, content))
    return Step(tuple(tensors))


def _content(path: Path, spec: TensorSpec, wanted: int | None) -> bytes:
    """The whole file, which is not read where its size tells that it is not what is wanted."""
    try:
        size = path.stat().st_size
        if wanted is not None and size != wanted:
            raise PerfError(f"provided data for input {spec.name} has byte size {size}, expect {wanted}")
        return read_bounded(str(path), MOST_BYTES if wanted is None else wanted)
    except OSError as error:
        raise PerfError(f"failed to read file for input {spec.name}: '{path}': {error.strerror}") from None
