"""Reads the folder of a Hugging Face checkpoint: its config.json, and its tensors as the bits that were saved."""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trireme.llm.models import quantized
from trireme.llm.models.quantized import QuantizedWeight
from trireme.machine.regular_files import read_regular

AnyArray = npt.NDArray[Any]
Float32Array = npt.NDArray[np.float32]

_DTYPES: Mapping[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "F8_E5M2": np.uint8,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
"""What the format calls a type, and the array that holds its bits."""

_POINTER = b"version https://git-lfs"
_IS_POINTER = "is a pointer of Git LFS, not the weights themselves; run `git lfs pull` in the folder"
_MAX_HEADER_BYTES = 100_000_000
_MAX_JSON_BYTES = 64 << 20
_MANY_BYTES = 16 * 2**20
_PIECE_BYTES = 4 * 2**20
_THREADS = 8
DOWNLOAD_AGAIN = "download the checkpoint again"


class CheckpointError(Exception):
    """A file of a checkpoint that cannot be used: which, what is wrong with it, what to do."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor: its bits, and what they mean (BF16 is held as uint16)."""

    array: AnyArray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(frozen=True, slots=True)
class UnpackedWeight(Weight):
    """A matrix that had few bits in the checkpoint: its outputs are its rows, as those of all such matrices are."""


StoredWeight: TypeAlias = Weight | QuantizedWeight
"""A tensor as a checkpoint has it."""


def to_float32(weight: StoredWeight) -> Float32Array:
    """The numbers; the array of the weight itself where that holds them already."""
    if isinstance(weight, QuantizedWeight):
        return quantized.to_float32(weight)
    if weight.dtype == "BF16":
        return (weight.array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if weight.dtype in ("F32", "F16", "F64"):
        return weight.array.astype(np.float32, copy=False)
    raise CheckpointError(
        f"weights of type {weight.dtype} cannot be computed with; use a checkpoint in F32, F16 or BF16"
    )


def to_plain(weight: StoredWeight) -> Weight:
    """The weight without quantization: in 16 bits where it had fewer."""
    return weight if isinstance(weight, Weight) else Weight(to_float32(weight).astype(np.float16), "F16")


def join(weights: Sequence[StoredWeight], axis: int = 0) -> StoredWeight:
    """One tensor of several of the same type; quantized ones stay so where their rows can lie in one matrix."""
    if len(weights) == 1:
        return weights[0]
    packed = [weight for weight in weights if isinstance(weight, QuantizedWeight)]
    if len(packed) == len(weights) and axis == 0 and quantized.are_alike(packed):
        return quantized.above_each_other(packed)
    plain = [to_plain(weight) for weight in weights]
    if packed and len({weight.dtype for weight in plain}) > 1:
        plain = [Weight(to_float32(weight), "F32") for weight in plain]
    _check_same_type(plain)
    return Weight(_concatenated([weight.array for weight in plain], axis), plain[0].dtype)


def _concatenated(arrays: Sequence[AnyArray], axis: int) -> AnyArray:
    """`np.concatenate`, large ones by several threads: each waits for a file's pages, and for memory's."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    if sum(array.nbytes for array in arrays) < _MANY_BYTES:
        return np.concatenate(arrays, axis)
    target = np.empty(shape, arrays[0].dtype)
    pieces, first = [], 0
    for array in arrays:
        view = target.swapaxes(0, axis)[first : first + array.shape[axis]].swapaxes(0, axis)
        rows = max(1, _PIECE_BYTES * array.shape[0] // max(array.nbytes, 1))
        pieces += [(view[row : row + rows], array[row : row + rows]) for row in range(0, array.shape[0], rows)]
        first += array.shape[axis]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        list(threads.map(lambda piece: np.copyto(*piece), pieces))
    return target


def stack(weights: Sequence[StoredWeight]) -> Weight:
    """Tensors of one shape and type along a new first axis, without quantization."""
    plain = [to_plain(weight) for weight in weights]
    _check_same_type(plain)
    return Weight(np.stack([weight.array for weight in plain]), plain[0].dtype)


def transpose(weight: StoredWeight) -> StoredWeight:
    """A matrix the other way round; one that was quantized has its outputs first, whatever the model had before."""
    return weight if isinstance(weight, QuantizedWeight | UnpackedWeight) else Weight(weight.array.T, weight.dtype)


def _check_same_type(weights: Sequence[Weight]) -> None:
    types = {weight.dtype for weight in weights}
    if len(types) > 1:
        raise CheckpointError(f"tensors that belong together are of several types: {', '.join(sorted(types))}")


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says."""
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}; give the one that has the model's files")
    if not (folder / "config.json").exists():
        version = _last_version(folder)
        advice = "give the folder that has the model's files, or " + DOWNLOAD_AGAIN
        if version is not None:
            advice = f"it is a model's folder around its versions; give {version}"
        raise CheckpointError(f"{folder} has no config.json, which is part of every checkpoint: {advice}")
    return read_json(folder / "config.json", "it is part of every checkpoint: " + DOWNLOAD_AGAIN)


def _last_version(folder: Path) -> Path | None:
    """The highest version of a model's folder in a repository that has a checkpoint; None where there is none."""
    names = (path.parent.name for path in folder.glob("*/config.json"))
    versions = [name for name in names if name.isascii() and name.isdecimal()]
    return folder / max(versions, key=int) if versions else None


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """An object from a file."""
    try:
        value = json.loads(read_regular(path, _MAX_JSON_BYTES))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); {advice}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); {advice}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds {type(value).__name__} in place of an object; {advice}")
    return value


def open_tensors(path: Path) -> TensorFile:
    """A single file of tensors, by the end of its name, that may change while it is read: no part of it is mapped, as
    touching what is no longer there would end the process. Raises CheckpointError where it is damaged."""
    if path.suffix == ".safetensors":
        return SafetensorsFile(path, is_mapped=False)
    return _TorchFile(path, is_mapped=False)


class Checkpoint:
    """The tensors of a folder, read one by one as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, TensorFile] = {}
        self._open, self._places = self._find()
        self.names: frozenset[str] = frozenset(self._places)

    def read(self, name: str) -> Weight:
        """A tensor by the name it has in the checkpoint; raises CheckpointError."""
        place = self._places.get(name)
        if place is None:
            raise CheckpointError(
                f"{self._folder} has no tensor '{name}'; its config.json and its weights do not belong together"
            )
        return self._file(place).read(name)

    @property
    def tensor_bytes(self) -> int:
        """Of all tensors, and of what the files have around them."""
        return sum((self._folder / name).stat().st_size for name in set(self._places.values()))

    def bytes_of(self, dtype: str) -> int:
        """Of the tensors of a type, by the name that safetensors has for it."""
        return sum(self._file(name).bytes_of(dtype) for name in set(self._places.values()))

    def _file(self, name: str) -> TensorFile:
        if name not in self._files:
            self._files[name] = self._open(self._folder / name)
        return self._files[name]

    def _find(self) -> tuple[Callable[[Path], TensorFile], dict[str, str]]:
        """How files are opened, and in which of them each tensor is."""
        for stem, suffix, opener in (("model", "safetensors", SafetensorsFile), ("pytorch_model", "bin", _TorchFile)):
            index = self._folder / f"{stem}.{suffix}.index.json"
            single = self._folder / f"{stem}.{suffix}"
            if single.is_file():
                file = self._files[single.name] = opener(single)
                return opener, dict.fromkeys(file.names, single.name)
            if index.is_file():
                return opener, self._places_in(index)
        raise CheckpointError(
            f"{self._folder} has no weights: neither model.safetensors nor pytorch_model.bin, nor an index of parts; "
            + DOWNLOAD_AGAIN
        )

    def _places_in(self, index: Path) -> dict[str, str]:
        places = read_json(index, DOWNLOAD_AGAIN).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise CheckpointError(f"{index} has no 'weight_map' of names to files; {DOWNLOAD_AGAIN}")
        for name in sorted(set(places.values())):
            if Path(name).name != name:
                raise CheckpointError(f"{index} names '{name}', which is not a file of the same folder")
            if not (self._folder / name).is_file():
                raise CheckpointError(f"{self._folder / name} is missing, a part that {index.name} names; download it")
        return places


class TensorFile:
    """One file of tensors."""

    names: frozenset[str]

    def read(self, name: str) -> Weight:
        raise KeyError(name)

    def bytes_of(self, dtype: str) -> int:
        """Of the tensors of a type; those of PyTorch's files have none that only safetensors names."""
        return 0


class SafetensorsFile(TensorFile):
    """Eight bytes with the length of a header, the header as JSON, then the tensors' bytes."""

    def __init__(self, path: Path, advice: str = DOWNLOAD_AGAIN, *, is_mapped: bool = True) -> None:
        """The advice is what to do where the file is damaged, which raises CheckpointError. One that is not mapped is
        copied into memory at once."""
        self._path, self._advice = path, advice
        self._bytes: mmap.mmap | bytes
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                if size < 8:
                    raise self._damaged(f"has {size} bytes, too few for a header")
                self._data_start = self._header_end(file.peek()[: len(_POINTER)], size)
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_mapped else file.read(size)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None
        except MemoryError:
            raise CheckpointError(f"{path} has {size} bytes, for which there is no memory") from None
        if len(self._bytes) < size:
            raise self._damaged(f"had {size} bytes, of which {len(self._bytes)} were left when it was read")
        self._header = self._read_header(size)
        self.names = frozenset(self._header)

    def read(self, name: str) -> Weight:
        entry = self._header.get(name)
        if entry is None:
            raise self._damaged(f"has no tensor '{name}', which the index says it has")
        dtype, shape, begin, end = self._checked(name, entry)
        kind = np.dtype(_DTYPES[dtype])
        count = (end - begin) // kind.itemsize
        array = np.frombuffer(self._bytes, kind, count, self._data_start + begin) if count else np.empty(0, kind)
        return Weight(np.require(array, requirements="A").reshape(shape), dtype)

    def bytes_of(self, dtype: str) -> int:
        named = [(name, entry) for name, entry in self._header.items() if isinstance(entry, dict)]
        places = [self._checked(name, entry)[2:] for name, entry in named if entry.get("dtype") == dtype]
        return sum(end - begin for begin, end in places)

    def check_all(self) -> None:
        """Raises CheckpointError where a tensor is not in the file as a whole."""
        for name, entry in self._header.items():
            self._checked(name, entry)

    def _header_end(self, start: bytes, size: int) -> int:
        """Looked at before the file is read as a whole."""
        if start == _POINTER:
            raise CheckpointError(f"{self._path} {_IS_POINTER}")
        length = int.from_bytes(start[:8], "little")
        if length > min(size - 8, _MAX_HEADER_BYTES):
            raise self._damaged(f"says that its header has {length} bytes, but the file has {size} in all")
        return 8 + length

    def _read_header(self, size: int) -> dict[str, Any]:
        self._data_bytes = size - self._data_start
        try:
            header = json.loads(self._bytes[8 : self._data_start])
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"has a header that is not JSON ({error})") from None
        if not isinstance(header, dict):
            raise self._damaged("has a header that is not an object")
        header.pop("__metadata__", None)
        return header

    def _checked(self, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
        try:
            dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise self._damaged(f"describes tensor '{name}' without type, shape or place") from None
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
            raise self._damaged(f"describes tensor '{name}' with sizes that are not whole numbers")
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise self._damaged(f"has tensor '{name}' of type {dtype}, which is not known here")
        if not begin <= end <= self._data_bytes:
            what = f"bytes {begin} to {end}, but the file has {self._data_bytes} bytes of tensors"
            raise self._damaged(f"says that tensor '{name}' is at {what}; it was not written or copied to its end")
        wanted = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        if wanted != end - begin:
            raise self._damaged(
                f"has {end - begin} bytes for tensor '{name}', whose shape {list(shape)} takes {wanted}"
            )
        return dtype, shape, begin, end

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path} {what}; {self._advice}")


class _TorchFile(TensorFile):
    """What PyTorch has saved; nothing but tensors is read from it."""

    def __init__(self, path: Path, *, is_mapped: bool = True) -> None:
        self._path = path
        try:
            import torch
        except ImportError:
            raise CheckpointError(
                f"{path} can only be read with PyTorch: install torch, or use a checkpoint with safetensors"
            ) from None
        try:
            try:
                self._tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped)
            except RuntimeError:  # written before files could be mapped, or damaged
                if not is_mapped:
                    raise
                self._tensors = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            with path.open("rb") as file:
                is_pointer = file.read(len(_POINTER)) == _POINTER
            if is_pointer:
                raise CheckpointError(f"{path} {_IS_POINTER}") from None
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            # PyTorch's own advice is to read it with less care, and of the others nothing can be seen.
            is_damaged = isinstance(error, pickle.UnpicklingError | UnicodeDecodeError | EOFError)
            if is_damaged or (isinstance(error, OSError) and error.errno == errno.EINVAL):
                reason = "it is damaged, or has something else than tensors in it"
            raise CheckpointError(f"{path} cannot be read by PyTorch ({reason}); {DOWNLOAD_AGAIN}") from None
        if not isinstance(self._tensors, dict):
            kind = type(self._tensors).__name__
            raise CheckpointError(f"{path} holds {kind} in place of tensors by name; save the model's state_dict")
        self.names = frozenset(self._tensors)

    def read(self, name: str) -> Weight:
        import torch

        if name not in self._tensors:
            raise CheckpointError(f"{self._path} has no tensor '{name}', which the index says it has; {DOWNLOAD_AGAIN}")
        tensor = self._tensors[name]
        if not isinstance(tensor, torch.Tensor):
            raise CheckpointError(f"{self._path} has {type(tensor).__name__} in place of the tensor '{name}'")
        tensor = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            return Weight(tensor.contiguous().view(torch.int16).numpy().view(np.uint16), "BF16")
        kinds = {np.dtype(kind): name for name, kind in _DTYPES.items() if not name.startswith(("BF16", "F8"))}
        try:
            array = tensor.numpy()
            return Weight(array, kinds[array.dtype])
        except (TypeError, KeyError):
            raise CheckpointError(
                f"{self._path} has tensor '{name}' of type {tensor.dtype}, which is not known here; save it in another"
            ) from None
