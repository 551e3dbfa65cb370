"""From the folder of an adapter to what is added to each of a model's matrices; all that does not fit is refused."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trireme.llm.adapters.adapter import Adapter, AdapterError, Array, LowRank, MatrixName
from trireme.llm.adapters.config_file import CONFIG_FILE, AdapterConfig, read_adapter_config
from trireme.llm.adapters.targets import Target, find_target, matrix_shape
from trireme.llm.models.checkpoint import CheckpointError, TensorFile, Weight, open_tensors, to_float32
from trireme.llm.models.fields import by_kind
from trireme.llm.models.spec import DecoderSpec

WEIGHT_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_TENSOR = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
_SHOWN = 3


def read_adapter(name: str, folder: Path, spec: DecoderSpec) -> Adapter:
    """Reads all of it; raises AdapterError where it is damaged, or made for another model."""
    config = read_adapter_config(folder)
    path = next((folder / file for file in WEIGHT_FILES if (folder / file).is_file()), None)
    if path is None:
        raise AdapterError(f"{folder} has no weights: neither {' nor '.join(WEIGHT_FILES)}; save the adapter again")
    salt = _salt(name, folder / CONFIG_FILE, path)
    try:
        file = open_tensors(path)
        modules = _modules(path, file)
        return Adapter(name, salt, _Joining(path, file, config, spec).layers(modules))
    except CheckpointError as error:
        raise AdapterError(str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # anything else that PyTorch has saved
        raise AdapterError(f"{path} holds something else than tensors ({type(error).__name__}: {error})") from None


def _modules(path: Path, file: TensorFile) -> dict[str, dict[str, str]]:
    """By the name of the module: what its two tensors are called in the file."""
    found: dict[str, dict[str, str]] = {}
    others = []
    for tensor in sorted(file.names):
        match = _TENSOR.fullmatch(tensor)
        if match is None:
            others.append(tensor)
        else:
            found.setdefault(match[1], {})[match[2]] = tensor
    if others:
        raise AdapterError(f"{path} has {_listed(others)}, which are not matrices of LoRA: merge the adapter instead")
    if not found:
        raise AdapterError(f"{path} has no tensors; save the adapter again with peft")
    for module, pair in found.items():
        if len(pair) != 2:
            raise AdapterError(f"{path} has one of the two matrices of '{module}' alone; save the adapter again")
    return found


class _Joining:
    """Puts the modules of one adapter together by the matrices they are rows of."""

    def __init__(self, path: Path, file: TensorFile, config: AdapterConfig, spec: DecoderSpec) -> None:
        self._path, self._file, self._config, self._spec = path, file, config, spec

    def layers(self, modules: Mapping[str, Mapping[str, str]]) -> tuple[Mapping[MatrixName, LowRank], ...]:
        """All of them; layers without adapted matrices are empty."""
        targets = self._targets(modules)
        parts: list[dict[MatrixName, list[tuple[Target, LowRank]]]] = [{} for _ in range(self._spec.layer_count)]
        for module, pair in modules.items():
            target = targets[module]
            parts[target.layer].setdefault(target.matrix, []).append((target, self._read(module, pair, target)))
        return tuple(
            {matrix: _joined(found, matrix_shape(matrix, self._spec)) for matrix, found in layer.items()}
            for layer in parts
        )

    def _targets(self, modules: Mapping[str, object]) -> dict[str, Target]:
        found, unknown = {}, []
        for module in modules:
            target = find_target(module, self._spec)
            if target is None:
                unknown.append(module)
            else:
                found[module] = target
        if unknown:
            raise AdapterError(
                f"{self._path} adapts {_listed(unknown)}, which {self._spec.architecture} of {self._spec.layer_count} "
                f"layers does not have or which cannot be adapted here{self._made_for()}; attention's and the MLP's "
                "matrices can be"
            )
        return found

    def _read(self, module: str, pair: Mapping[str, str], target: Target) -> LowRank:
        columns, rank = matrix_shape(target.matrix, self._spec)[1], self._config.rank_of(module)
        a = self._matrix(pair["A"], (rank, columns))
        b = self._matrix(pair["B"], (target.row_count, rank))
        if target.is_mixed:
            b = to_float32(by_kind(Weight(b, "F32"), self._spec))
        return LowRank(a, b * np.float32(self._config.scale_of(module)))

    def _matrix(self, tensor: str, shape: tuple[int, int]) -> Array:
        numbers = to_float32(self._file.read(tensor))
        if numbers.shape != shape:
            raise AdapterError(
                f"{self._path} has '{tensor}' as {list(numbers.shape)}, where the model and the adapter's rank ask for "
                f"{list(shape)}{self._made_for()}"
            )
        if not np.isfinite(numbers).all():
            raise AdapterError(f"{self._path} has numbers in '{tensor}' that are not finite; train the adapter again")
        return np.array(numbers)  # no part of a file that somebody might replace

    def _made_for(self) -> str:
        return f"; it was made for '{self._config.base_model}'" if self._config.base_model else ""


def _joined(parts: list[tuple[Target, LowRank]], shape: tuple[int, int]) -> LowRank:
    """The parts of one matrix: each adds to its own rows alone."""
    if len(parts) == 1 and parts[0][1].b.shape[0] == shape[0]:
        return parts[0][1]
    b = np.zeros((shape[0], sum(part.a.shape[0] for _, part in parts)), np.float32)
    rank = 0
    for target, part in parts:
        rows = slice(target.first_row, target.first_row + target.row_count)
        b[rows, rank : rank + part.a.shape[0]] = part.b
        rank += part.a.shape[0]
    return LowRank(np.concatenate([part.a for _, part in parts]), b)


def _salt(name: str, *paths: Path) -> bytes:
    """Another one when the files change."""
    try:
        stamps = [(path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
    except OSError as error:
        raise AdapterError(f"{paths[0].parent} cannot be read ({error.strerror})") from None
    return b"adapter" + hashlib.blake2b(repr((name, stamps)).encode(), digest_size=16).digest()


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
