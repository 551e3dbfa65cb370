"""Writes a GPT-NeoX of Hugging Face as a FasterTransformer checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trireme.llm.models import catalog
from trireme.llm.models.checkpoint import AnyArray, Checkpoint, CheckpointError, read_config, to_float32
from trireme.llm.models.fastertransformer.config_file import (
    ARCHITECTURE,
    CONFIG_FILE,
    FULL_CONFIG_FILE,
    WEIGHT_TYPE_FIELDS,
    needs_full_config,
    write_config,
)
from trireme.llm.models.fastertransformer.layout import (
    HEAD_NAMES,
    TensorFile,
    bias_sum_name,
    tensor_files,
    to_file_layout,
)
from trireme.llm.models.spec import DecoderSpec

_KINDS: Mapping[str, np.dtype[Any]] = {"fp32": np.dtype("<f4"), "fp16": np.dtype("<f2")}


def convert(
    source: Path, target: Path, *, rank_count: int, data_type: str, model_name: str, thread_count: int = 4
) -> Path:
    """The folder `<target>/<ranks>-gpu`, complete or not there at all; raises CheckpointError."""
    folder = target / f"{rank_count}-gpu"
    if folder.exists():
        raise CheckpointError(f"{folder} is there already; remove it first, or choose another folder")
    config = read_config(source)
    spec = _spec(source, config)
    _check_ranks(spec, rank_count)
    checkpoint = Checkpoint(source)
    unfinished = target / f".{folder.name}.unfinished"
    is_new = not target.exists()
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        (unfinished / CONFIG_FILE).write_text(write_config(spec, config, model_name, data_type))
        if needs_full_config(spec, config):
            full = {name: value for name, value in config.items() if name not in WEIGHT_TYPE_FIELDS}
            (unfinished / FULL_CONFIG_FILE).write_text(json.dumps(full, indent=2) + "\n")
        _write_tensors(_Writer(unfinished, spec, checkpoint, rank_count, data_type), thread_count)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if is_new and not folder.exists():
            with suppress(OSError):  # another conversion has begun there
                target.rmdir()
    return folder


def _spec(source: Path, config: dict[str, Any]) -> DecoderSpec:
    named = (config.get("architectures") or ["none"])[0]
    if named != ARCHITECTURE:
        raise CheckpointError(
            f"{source} is a {named}; FasterTransformer checkpoints are written of {ARCHITECTURE} alone. Other models "
            "are served from their Hugging Face folders, without converting"
        )
    return catalog.read_spec(source)


def _check_ranks(spec: DecoderSpec, count: int) -> None:
    for what, size in (("heads", spec.head_count), ("columns of the MLP", spec.mlp_size)):
        if size % count:
            raise CheckpointError(f"{size} {what} cannot be parted among {count} ranks")


def _write_tensors(writer: _Writer, thread_count: int) -> None:
    """Everything, so many tensors at a time; the first failure is raised, and what has not begun by then is not."""
    steps: list[Callable[[], None]] = [partial(writer.write, tensor) for tensor in writer.tensors()]
    if writer.spec.is_parallel:
        steps += [partial(writer.write_bias_sum, layer) for layer in range(writer.spec.layer_count)]
    pool = ThreadPoolExecutor(thread_count)
    try:
        for step in [pool.submit(step) for step in steps]:
            step.result()
    finally:
        pool.shutdown(cancel_futures=True)


class _Writer:
    """One checkpoint being written. Its methods run on several threads, each for files of its own."""

    def __init__(self, folder: Path, spec: DecoderSpec, checkpoint: Checkpoint, rank_count: int, dtype: str) -> None:
        self.spec = spec
        self._folder = folder
        self._checkpoint = checkpoint
        self._rank_count = rank_count
        self._kind = _KINDS[dtype]
        self._source_names = {name: name for name in checkpoint.names} | _head_name(spec, checkpoint)

    def tensors(self) -> list[TensorFile]:
        """Those that the model has, and those that it must have."""
        return [
            tensor for tensor in tensor_files(self.spec) if tensor.name in self._source_names or not tensor.is_optional
        ]

    def write(self, tensor: TensorFile) -> None:
        array = to_file_layout(tensor, self._values(tensor.name), self.spec)
        if array.shape != tensor.shape:
            raise CheckpointError(f"'{tensor.name}' becomes {list(array.shape)} in place of {list(tensor.shape)}")
        if tensor.split == "share":
            array = self._share(array)
        parts = [array]
        if tensor.has_ranks:
            parts = np.split(array, self._rank_count, axis=0 if tensor.split == "rows" else -1)
        for file, part in zip(tensor.file_names(self._rank_count), parts, strict=True):
            part.tofile(self._folder / file)

    def write_bias_sum(self, layer: int) -> None:
        """What a layer with attention and MLP side by side adds in one go: the sum of the two shares."""
        prefix = f"gpt_neox.layers.{layer}"
        names = (f"{prefix}.attention.dense.bias", f"{prefix}.mlp.dense_4h_to_h.bias")
        shares = [self._share(self._values(name)) for name in names if name in self._source_names]
        total = shares[0] if len(shares) == 1 else shares[0] + shares[1]
        total.astype(self._kind).tofile(self._folder / bias_sum_name(layer))

    def _share(self, array: AnyArray) -> AnyArray:
        return array / self._kind.type(self._rank_count) if self._rank_count > 1 else array

    def _values(self, name: str) -> AnyArray:
        weight = self._checkpoint.read(self._source_names.get(name, name))
        if weight.array.dtype == self._kind and weight.dtype != "BF16":
            return weight.array
        return to_float32(weight).astype(self._kind)


def _head_name(spec: DecoderSpec, checkpoint: Checkpoint) -> dict[str, str]:
    """Under which name the checkpoint has the output matrix; the embedding where the two are one."""
    if spec.is_tied:
        return {HEAD_NAMES[0]: "gpt_neox.embed_in.weight"}
    return {HEAD_NAMES[0]: next((name for name in HEAD_NAMES if name in checkpoint.names), HEAD_NAMES[0])}
