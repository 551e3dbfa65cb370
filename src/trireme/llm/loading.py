"""From the folder of a checkpoint to an executor, on the device that is asked for or on the best there is."""

from __future__ import annotations

import importlib.util
import logging
import re
from pathlib import Path

from trireme.llm.executors.limits import check_room
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.machine.cpu_arithmetic import emulates
from trireme.machine.host_memory import free_host_bytes

log = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16", "float16")
_STORED = {"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""By the type of a checkpoint's tensors: the one to compute in."""
_DEVICE = re.compile(r"auto|numpy|cpu|cuda(:\d+)?")


def load_executor(folder: str | Path, options: EngineOptions, device: str = "auto", dtype: str = "auto") -> Executor:
    """Loads the model of a folder.

    `device` is "auto", "cuda", "cuda:<number>", "cpu" or "numpy". "auto" takes a GPU where PyTorch sees one, then the
    CPU with PyTorch, then the CPU with numpy. `dtype` is "auto" or one of DTYPES. "auto" is the checkpoint's type on a
    GPU; on a CPU it is float32, or bfloat16 where the checkpoint has 16 bits and the processor computes with them.

    Raises ExecutorError where the device cannot take the model, CheckpointError where the folder's files cannot be
    used, UnsupportedModelError where the architecture is not known.
    """
    folder = Path(folder)
    if not _DEVICE.fullmatch(device):
        raise ExecutorError(f"'{device}' is not a device; known are auto, cuda, cuda:<number>, cpu and numpy")
    if dtype not in ("auto", *DTYPES):
        raise ExecutorError(f"'{dtype}' is not a type to compute in; known are auto, {', '.join(DTYPES)}")
    if not folder.is_dir():
        raise ExecutorError(f"there is no folder {folder}; give the folder that has the model's config.json")
    spec = read_spec(folder)
    has_torch = importlib.util.find_spec("torch") is not None
    if device == "numpy" or (device in ("auto", "cpu") and not has_torch):
        return _with_numpy(folder, spec, options, dtype)
    if not has_torch:
        raise ExecutorError(f"the device '{device}' needs PyTorch, which is not installed; install torch, or use 'cpu'")
    return _with_torch(folder, spec, options, device, dtype)


def _with_numpy(folder: Path, spec: DecoderSpec, options: EngineOptions, dtype: str) -> Executor:
    if dtype not in ("auto", "float32"):
        raise ExecutorError(f"numpy computes in float32 alone, not in {dtype}; install torch for other types")
    from trireme.llm.executors.numpy.executor import NumpyExecutor

    check_room(spec, options, 4, "float32", free_host_bytes(), "the machine has {} of memory free")
    log.info("%s runs on the CPU with numpy, in float32; PyTorch would be faster", spec.architecture)
    return NumpyExecutor(spec, load_weights(folder, spec), options)


def _with_torch(folder: Path, spec: DecoderSpec, options: EngineOptions, device: str, dtype: str) -> Executor:
    from trireme.llm.executors.torch import loading

    weights = load_weights(folder, spec)
    if device == "cpu" or (device == "auto" and not loading.has_cuda()):
        return loading.load_on_cpu(spec, weights, options, _dtype_on_cpu(folder, spec) if dtype == "auto" else dtype)
    chosen = _stored_dtype(folder, spec) if dtype == "auto" else dtype
    return loading.load_on_cuda(spec, weights, options, chosen, "cuda" if device == "auto" else device)


def _dtype_on_cpu(folder: Path, spec: DecoderSpec) -> str:
    is_half = _stored_dtype(folder, spec) in ("bfloat16", "float16")
    return "bfloat16" if is_half and not emulates("bfloat16") else "float32"


def _stored_dtype(folder: Path, spec: DecoderSpec) -> str:
    """The type of the first tensor, the embeddings: those of norms may differ."""
    _, weight = next(load_weights(folder, spec))
    return _STORED.get(weight.dtype, "bfloat16")
