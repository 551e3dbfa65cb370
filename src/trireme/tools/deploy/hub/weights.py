"""How many parameters a model has, and how they are stored, told from headers and sizes without reading weights."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trireme.core.reading.json_levels import read_json
from trireme.tools.deploy.hub.model_files import ModelFiles, weight_files
from trireme.tools.deploy.options import ModelNotUsableError

STORED_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "I8": 8, "U8": 8, "BOOL": 8, "F4": 4,
}  # fmt: skip
"""Bits of one value, by safetensors' names."""
COMPUTE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_COMPUTE_NAMES = {"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_LONGEST_HEADER_BYTES = 100_000_000
_METADATA = "__metadata__"
_POINTER_BYTES = 1000
"""What stands for a file that was not pulled is shorter."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a model's weights amount to."""

    parameter_count: int
    stored_bytes: int
    stored_dtype: str
    """`float32`, `bfloat16`, `float16`, or what a quantised model is stored as."""
    is_exact: bool
    """Whether the count was read, or told from the size of the files."""
    largest_bytes: int
    """The most that is read at once: a tensor, or a file where its tensors are not known."""
    packed_as: str = ""
    """How several numbers are stored in one, such as `int4` or `awq`; "": they are not."""
    is_unpacked: bool = False
    """Whether packed ones are loaded as numbers one by one."""

    def loaded_bytes(self, dtype: str) -> int:
        """Their size in memory in this datatype; a quantised model stays as it is stored, unless it is unpacked."""
        if self.packed_as:
            return self.parameter_count * COMPUTE_BYTES.get(dtype, 2) if self.is_unpacked else self.stored_bytes
        if self.stored_dtype not in COMPUTE_BYTES or dtype not in COMPUTE_BYTES:
            return self.stored_bytes
        return self.parameter_count * COMPUTE_BYTES[dtype]

    def conversion_bytes(self, dtype: str) -> int:
        """What is held twice for a moment where the weights are stored in another datatype."""
        return 0 if self.loaded_bytes(dtype) == self.stored_bytes else self.largest_bytes


def weigh(model: ModelFiles) -> Weights:
    """The weights of a model, on this machine or on the hub."""
    files = weight_files(model.files, model.indexed)
    largest_file_bytes = max((file.size_bytes for file in files), default=0)
    headers = _headers(model)
    if headers:
        counts = sum((header.counts for header in headers), Counter[str]())
        return _counted(counts, max(header.largest_bytes for header in headers))
    if model.parameter_counts:
        return _counted(model.parameter_counts, largest_file_bytes)
    stored_bytes = sum(file.size_bytes for file in files)
    dtype = configured_dtype(model.config) or "float32"
    return Weights(stored_bytes // COMPUTE_BYTES[dtype], stored_bytes, dtype, False, largest_file_bytes)


def tensor_names(model: ModelFiles) -> frozenset[str] | None:
    """What the weights are called; None where they are not on this machine, or in a form without a header."""
    headers = _headers(model)
    return frozenset().union(*(header.names for header in headers)) if headers else None


def _headers(model: ModelFiles) -> list[Header]:
    files = weight_files(model.files, model.indexed)
    if model.folder is None or not files or not files[0].name.endswith(".safetensors"):
        return []
    return [read_header(model.folder / file.name) for file in files]


@dataclass(frozen=True, slots=True)
class Header:
    """What the beginning of a safetensors file says."""

    counts: Counter[str]
    """Values by datatype."""
    largest_bytes: int
    names: frozenset[str]
    """Of its tensors."""


def read_header(file: Path) -> Header:
    """Reads the beginning of the file alone; raises ModelNotUsableError where it is not one, or ends early."""
    counts: Counter[str] = Counter()
    largest_bytes = last_byte = 0
    size_bytes = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _LONGEST_HEADER_BYTES:
                raise ValueError("its header is too long")
            header = read_json(stream.read(length))
        for name, entry in header.items():
            if name != _METADATA:
                counts[entry["dtype"]] += math.prod(entry["shape"])
                begin, end = entry["data_offsets"]
                largest_bytes, last_byte = max(largest_bytes, end - begin), max(last_byte, end)
        if size_bytes < 8 + length + last_byte:
            raise ValueError(f"it has {size_bytes} bytes of {8 + length + last_byte}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        hint = "; it may be a Git LFS pointer: run 'git lfs pull'" if size_bytes < _POINTER_BYTES else ""
        raise ModelNotUsableError(f"'{file}' is not a complete safetensors file: {error}{hint}") from None
    return Header(counts, largest_bytes, frozenset(header) - {_METADATA})


def configured_dtype(config: Mapping[str, object]) -> str | None:
    """The datatype that config.json names, for the model or for its language part."""
    for part in (config, config.get("text_config")):
        if isinstance(part, Mapping):
            name = part.get("dtype") or part.get("torch_dtype")
            if isinstance(name, str) and name.removeprefix("torch.") in COMPUTE_BYTES:
                return name.removeprefix("torch.")
    return None


def _counted(counts: Mapping[str, int], largest_bytes: int) -> Weights:
    stored_bytes = sum(count * STORED_BITS.get(dtype, 32) // 8 for dtype, count in counts.items())
    most = max(counts, key=lambda dtype: counts[dtype])
    dtype = _COMPUTE_NAMES.get(most, most.lower())
    return Weights(sum(counts.values()), stored_bytes, dtype, True, largest_bytes)
