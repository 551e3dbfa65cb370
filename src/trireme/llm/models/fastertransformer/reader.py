"""Reads the folder of a FasterTransformer checkpoint: the tensors of all ranks, joined, under Hugging Face's names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import AnyArray, CheckpointError, Weight
from trireme.llm.models.fastertransformer.config_file import CONFIG_FILE
from trireme.llm.models.fastertransformer.layout import TensorFile, from_file_layout, tensor_files
from trireme.llm.models.spec import DecoderSpec

_KINDS: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}
_RANK_FOLDER = re.compile(r"(\d+)-gpu")
_FIRST_PARTED = "model.layers.0.attention.query_key_value.weight"


def find_folder(path: Path) -> Path | None:
    """The folder of the checkpoint that a path means, itself or its one `<ranks>-gpu` folder; None for another kind.

    A folder with config.json is a Hugging Face checkpoint, whatever lies beside it.
    """
    if (path / "config.json").is_file():
        return None
    if (path / CONFIG_FILE).is_file():
        return path
    inside = [entry for entry in path.glob("*-gpu") if (entry / CONFIG_FILE).is_file()]
    if len(inside) > 1:
        names = ", ".join(sorted(entry.name for entry in inside))
        raise CheckpointError(f"{path} holds checkpoints for several numbers of ranks ({names}); name one of them")
    return inside[0] if inside else None


def count_ranks(folder: Path) -> int:
    """For how many ranks of tensor parallelism the files are; raises CheckpointError where some are missing."""
    found = {int(path.name.split(".")[-2]) for path in folder.glob(f"{_FIRST_PARTED}.*.bin") if _has_rank(path)}
    if not found:
        raise CheckpointError(
            f"{folder} has {CONFIG_FILE} and no {_FIRST_PARTED}.0.bin; the checkpoint is not complete: convert it again"
        )
    missing = set(range(max(found) + 1)) - found
    if missing:
        raise CheckpointError(
            f"{folder} has files of rank {max(found)} and none of rank {min(missing)}; the checkpoint is not complete"
        )
    return len(found)


def check_ranks(folder: Path, wanted: int) -> None:
    """Raises CheckpointError where the files are for another number of ranks."""
    count = count_ranks(folder)
    if count != wanted:
        raise CheckpointError(
            f"{folder} is a checkpoint for {_ranks(count)}, but {wanted} are asked for; "
            f"set tensor_para_size to {count}, or convert the model with -i_g {wanted}"
        )


class FasterTransformerCheckpoint:
    """The tensors of a folder, joined and turned one by one as they are asked for.

    That every file is there and of its size is looked at first, so a partial copy is told before anything is read.
    """

    def __init__(self, folder: Path, spec: DecoderSpec, dtype: str) -> None:
        self._folder = folder
        self._spec = spec
        self._dtype = dtype
        self.rank_count = count_ranks(folder)
        self._check_named_ranks()
        self._check_divisible()
        self._files = {tensor.name: tensor for tensor in self._present(list(tensor_files(spec)))}
        for tensor in self._files.values():
            self._check_sizes(tensor)
        self.names: frozenset[str] = frozenset(self._files)

    def read(self, name: str) -> Weight:
        """A tensor by Hugging Face's name; raises CheckpointError."""
        tensor = self._files.get(name)
        if tensor is None:
            raise CheckpointError(f"{self._folder} has no tensor '{name}'")
        shape = tensor.file_shape(self.rank_count)
        parts = [self._array(self._folder / file).reshape(shape) for file in tensor.file_names(self.rank_count)]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=0 if tensor.split == "rows" else -1)
        if tensor.split == "share" and self.rank_count > 1:
            array = array * array.dtype.type(self.rank_count)
        return Weight(from_file_layout(tensor, array, self._spec), self._dtype)

    def _array(self, path: Path) -> AnyArray:
        try:
            return np.memmap(path, _KINDS[self._dtype], "r").view(np.ndarray)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read ({error}); convert the model again") from None

    def _present(self, tensors: list[TensorFile]) -> list[TensorFile]:
        """The tensors without those that no layer has; raises CheckpointError for a file that is missing."""
        there = {path.name for path in self._folder.iterdir()}
        missing = [
            (tensor, file) for tensor in tensors for file in tensor.file_names(self.rank_count) if file not in there
        ]
        optional = [tensor for tensor in tensors if tensor.is_optional]
        lacking = {tensor.name for tensor, _ in missing}
        has_none = all(tensor.name in lacking for tensor in optional)
        for tensor, file in missing:
            if not (tensor.is_optional and has_none):
                more = len(missing) - 1
                others = f" and {more} other files are" if more > 1 else " is"
                raise CheckpointError(
                    f"{self._folder / file}{others} missing; the checkpoint is not complete: copy or convert it again"
                )
        return [tensor for tensor in tensors if not (tensor.is_optional and has_none)]

    def _check_sizes(self, tensor: TensorFile) -> None:
        shape = tensor.file_shape(self.rank_count)
        wanted = math.prod(shape) * _KINDS[self._dtype].itemsize
        for file in tensor.file_names(self.rank_count):
            size = (self._folder / file).stat().st_size
            if size == wanted:
                continue
            about = f"{self._folder / file} has {size} bytes, but {list(shape)} in {self._dtype} takes {wanted}"
            if tensor.has_ranks and size < wanted and wanted * self.rank_count % max(size, 1) == 0 and size:
                meant = wanted * self.rank_count // size
                about += f"; it seems to be of a checkpoint for {_ranks(meant)}, of which {self.rank_count} are here"
            raise CheckpointError(f"{about}; copy or convert the checkpoint again")

    def _check_named_ranks(self) -> None:
        """A folder `<ranks>-gpu` says how many there are to be."""
        named = _RANK_FOLDER.fullmatch(self._folder.name)
        if named and int(named[1]) != self.rank_count:
            raise CheckpointError(
                f"{self._folder} is named for {_ranks(int(named[1]))} and has the files of {self.rank_count}; "
                "the checkpoint is not complete: copy or convert it again"
            )

    def _check_divisible(self) -> None:
        spec, count = self._spec, self.rank_count
        if spec.head_count % count or spec.mlp_size % count:
            raise CheckpointError(
                f"{self._folder} has files of {_ranks(count)}, which {spec.head_count} heads and an MLP of "
                f"{spec.mlp_size} cannot be parted among; {CONFIG_FILE} and the files do not belong together"
            )


def _has_rank(path: Path) -> bool:
    return path.name.split(".")[-2].isdecimal()


def _ranks(count: int) -> str:
    return "one rank" if count == 1 else f"{count} ranks"
