"""Finds out how a Hugging Face checkpoint is quantized, and reads it as if each matrix were one tensor."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Protocol

from trireme.llm.models.checkpoint import (
    DOWNLOAD_AGAIN,
    Checkpoint,
    CheckpointError,
    StoredWeight,
    Weight,
    to_float32,
)
from trireme.llm.models.quantized import are_finite
from trireme.llm.models.quantized_formats import awq, compressed_tensors, gptq


class Format(Protocol):
    """How one kind of checkpoint stores its matrices."""

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""


_SCALES = (".scales", ".weight_scale", ".weight_scale_inv")
"""By the end of their names: parts that others are multiplied with."""
_Opened = tuple[Format, tuple[str, ...]]
_METHODS: Mapping[str, Callable[[Mapping[str, Any]], _Opened]] = {
    "awq": lambda settings: (awq.AwqFormat(settings), awq.MARKS),
    "gptq": lambda settings: (gptq.GptqFormat(settings), gptq.MARKS),
    "compressed-tensors": lambda settings: (
        compressed_tensors.CompressedTensorsFormat(settings),
        compressed_tensors.MARKS,
    ),
    "fp8": lambda settings: (compressed_tensors.CompressedTensorsFormat(settings), compressed_tensors.MARKS),
}
"""By the word of config.json: the format, and the parts by which a quantized module is known."""


def method_of(config: Mapping[str, Any]) -> str:
    """How config.json says that the checkpoint is quantized; "" where it is not. Raises CheckpointError."""
    settings = _settings(config)
    if settings is None:
        return ""
    method = str(settings.get("quant_method", "none")).lower()
    if method not in _METHODS:
        raise CheckpointError(
            f"the checkpoint is quantized with '{method}', which is not known here; known are "
            f"{', '.join(sorted(_METHODS))}: use such a one, or the model without quantization"
        )
    return method


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = config.get("quantization_config") or config.get("compression_config")
    return found if isinstance(found, dict) else None


class QuantizedCheckpoint:
    """The tensors of a checkpoint; a quantized module has a `.weight` like any other."""

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
        """Raises CheckpointError where the quantization is not known."""
        self._checkpoint = checkpoint
        self._format, marks = _METHODS[method_of(config)](_settings(config) or {})
        self._modules = frozenset(
            name.removesuffix(mark) for name in checkpoint.names for mark in marks if name.endswith(mark)
        )
        self.names: frozenset[str] = checkpoint.names | {f"{module}.weight" for module in self._modules}

    def read(self, name: str) -> StoredWeight:
        """A tensor by the name it has, or would have without quantization; raises CheckpointError."""
        module = name.removesuffix(".weight")
        if name == module or module not in self._modules:
            return self._checkpoint.read(name)
        try:
            return self._format.read(module, self._read_part, self._checkpoint.names)
        except (ValueError, IndexError, ZeroDivisionError) as error:
            raise CheckpointError(f"the parts of '{module}' do not belong together: {error}") from None

    def _read_part(self, name: str) -> Weight:
        """A part of a module as it is stored; scales have to be numbers, or all of the module would be none."""
        part = self._checkpoint.read(name)
        if name.endswith(_SCALES) and not are_finite(to_float32(part)):
            raise CheckpointError(f"'{name}' has scales that are infinite or not numbers; {DOWNLOAD_AGAIN}")
        return part
