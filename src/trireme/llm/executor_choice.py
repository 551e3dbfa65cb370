"""From the folder of a checkpoint to an executor, on the device that is asked for or on the best there is."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trireme.llm.executors.limits import (
    check_room,
    refuse_batch_invariance,
    refuse_beside_numpy,
    refuse_quantized_batch_invariance,
    refuse_ranks,
    refuse_small_cache,
)
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.models.catalog import float8_bytes, load_weights, quantization_of, read_spec, stored_bytes
from trireme.llm.models.checkpoint import Weight, read_config
from trireme.llm.models.engine_folder.description import is_engine_folder, read_description
from trireme.llm.models.fields import UnsupportedModelError
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import CacheType, EngineOptions
from trireme.machine.cpu_arithmetic import emulates
from trireme.machine.host_memory import free_host_bytes

log = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16", "float16")
_STORED = {"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""By the type of a checkpoint's tensors: the one to compute in."""
_DEVICE = re.compile(r"auto|numpy|cpu|cuda(:\d+)?|hpu(:\d+)?")


def load_executor(folder: str | Path, options: EngineOptions, device: str = "auto", dtype: str = "auto") -> Executor:
    """Loads the model of a folder.

    `device` is "auto", "cuda", "cuda:<number>", "hpu", "cpu" or "numpy". "auto" takes a GPU where PyTorch sees one,
    then the CPU with PyTorch, then the CPU with numpy. `dtype` is "auto" or one of DTYPES. "auto" is the checkpoint's
    type on a GPU or HPU; on a CPU it is float32, or bfloat16 where the checkpoint has 16 bits and the processor
    computes with them. An architecture that the catalog does not have runs through the model code of transformers.

    Raises ExecutorError where the device cannot take the model, CheckpointError where the folder's files cannot be
    used, UnsupportedModelError where the architecture is known neither here nor, for want of it, in transformers.
    """
    folder = Path(folder)
    if not _DEVICE.fullmatch(device):
        raise ExecutorError(f"'{device}' is not a device; known are auto, cuda, cuda:<number>, hpu, cpu and numpy")
    if dtype not in ("auto", *DTYPES):
        raise ExecutorError(f"'{dtype}' is not a type to compute in; known are auto, {', '.join(DTYPES)}")
    check_folder(folder)
    try:
        spec = read_spec(folder)
    except UnsupportedModelError as error:
        return _with_transformers(folder, options, device, dtype, error)
    _tell_limits(options, spec)
    quantization = quantization_of(folder)
    refuse_quantized_batch_invariance(options, quantization)
    has_torch = importlib.util.find_spec("torch") is not None
    if device == "numpy" or (device in ("auto", "cpu") and not has_torch):
        hint = "" if device == "numpy" else "; PyTorch would be faster"
        return _with_numpy(folder, spec, options, dtype, quantization, hint)
    if not has_torch:
        raise ExecutorError(f"the device '{device}' needs PyTorch, which is not installed; install torch, or use 'cpu'")
    return _with_torch(folder, spec, options, device, dtype, quantization)


def _tell_limits(options: EngineOptions, spec: DecoderSpec) -> None:
    """Of limits that are others than those that were asked for."""
    if options.max_length is not None and options.max_length > spec.max_positions:
        log.warning(
            "max_length is %d, but the model takes %d tokens: so many it is", options.max_length, spec.max_positions
        )
    if options.cache_tokens is not None and (over := options.cache_tokens % options.block_size):
        kept = options.cache_tokens + options.block_size - over
        log.info(
            "cache_tokens is %d: the cache keeps %d, whole blocks of %d", options.cache_tokens, kept, options.block_size
        )


def check_folder(folder: Path) -> None:
    """Raises ExecutorError where there is none."""
    if not folder.is_dir():
        raise ExecutorError(f"there is no folder {folder}; give the folder that has the model's config.json")


def devices_in_use(executor: Executor, device: str) -> tuple[str, ...]:
    """Those that an executor computes on which was loaded for this device: "cpu", "cuda:0"; one for each rank."""
    ranks: tuple[str, ...] | None = getattr(executor, "rank_devices", None)
    if ranks is not None:
        return ranks
    place = _place(device)
    return (place if place == "cpu" or ":" in place else f"{place}:0",)


def planned_dtype(folder: Path | None, device: str, dtype: str = "auto", saved: str = "float32") -> str:
    """The type that `load_executor` computes in on this device, told without loading anything; `saved` is that of a
    checkpoint whose files are not here."""
    if dtype != "auto":
        return dtype
    if device in ("cpu", "numpy") and importlib.util.find_spec("torch") is None:
        return "float32"
    return _dtype(dtype, device, lambda: saved if folder is None else _type_in(folder))


def is_on_cuda(device: str) -> bool:
    """Whether an executor for this device computes on a GPU."""
    return _place(device).startswith("cuda")


def _place(device: str) -> str:
    """What "auto" means here; both names of the processor are one."""
    if device == "numpy" or (device in ("auto", "cpu") and importlib.util.find_spec("torch") is None):
        return "cpu"
    from trireme.llm.executors.torch import devices

    return devices.place(device)


def _with_numpy(
    folder: Path, spec: DecoderSpec, options: EngineOptions, dtype: str, quantization: str, hint: str
) -> Executor:
    refuse_beside_numpy(options, dtype)
    from trireme.llm.executors.numpy.executor import NumpyExecutor

    check_room(spec, options, 4, "float32", free_host_bytes(), "the machine has {} of memory free")
    log.info("%s runs on the CPU with numpy, in float32%s", spec.architecture, hint)
    _tell_unpacking(quantization, "numpy", "float32")
    return NumpyExecutor(spec, load_weights(folder, spec), options)


def _with_torch(
    folder: Path, spec: DecoderSpec, options: EngineOptions, device: str, dtype: str, quantization: str
) -> Executor:
    from trireme.llm.executors.torch import devices

    weights = load_weights(folder, spec)
    place = devices.place(device)
    if place.startswith("hpu"):
        refuse_small_cache(options, f"on '{place}'")
        refuse_ranks(options, f"on '{place}'")
    else:
        options = _as_built(folder, options)
    if not place.startswith("cuda"):
        refuse_batch_invariance(options, f"on '{place}'")
    chosen = _dtype(dtype, place, lambda: _stored_dtype(folder, spec))
    if (options.ranks or 1) > 1:
        from trireme.llm.executors.ranks.loading import load_on_ranks

        _tell_unpacking(quantization, place, chosen)
        return load_on_ranks(folder, spec, options, place, chosen)
    if place.startswith("cuda"):
        from trireme.llm.executors.cuda.loading import load_on_cuda

        if not quantization:
            return load_on_cuda(spec, weights, options, chosen, place)
        return load_on_cuda(spec, weights, options, chosen, place, stored_bytes(folder), float8_bytes(folder))
    _tell_unpacking(quantization, place, chosen)
    if place == "cpu":
        from trireme.llm.executors.torch.loading import load_on_cpu

        return load_on_cpu(spec, weights, options, chosen)
    from trireme.llm.executors.hpu.loading import load_on_hpu

    return load_on_hpu(spec, weights, options, chosen)


def _as_built(folder: Path, options: EngineOptions) -> EngineOptions:
    """With what the folder of an engine says of matters that the options leave to it."""
    if not is_engine_folder(folder):
        return options
    built = read_description(folder)
    is_left = options.cache_type is CacheType.AUTO
    cache_type = CacheType(built.kv_cache) if is_left else options.cache_type
    return replace(options, cache_type=cache_type, ranks=options.ranks or built.tensor_parallel)


def _tell_unpacking(quantization: str, place: str, dtype: str) -> None:
    if quantization:
        where = {"numpy": "numpy", "cpu": "this CPU"}.get(place, f"'{place}'")
        log.info(
            "the model's quantized weights (%s) are unpacked to %s, in which %s computes", quantization, dtype, where
        )


def _with_transformers(
    folder: Path, options: EngineOptions, device: str, dtype: str, why: UnsupportedModelError
) -> Executor:
    """The model through the code that transformers has for it."""
    refuse_batch_invariance(options, "through transformers' code")
    refuse_small_cache(options, "through transformers' code")
    refuse_ranks(options, "through transformers' code")
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if device == "numpy":
        raise UnsupportedModelError(f"{why}; others run through transformers, which does not compute with numpy")
    if missing:
        raise UnsupportedModelError(f"{why}; others run through transformers: install {' and '.join(missing)}")
    from trireme.llm.executors.torch import devices
    from trireme.llm.executors.transformers.loading import load_general

    place = devices.place(device)
    if place.startswith("hpu"):
        from trireme.llm.executors.hpu.software import DEVICE, GaudiSoftware

        GaudiSoftware()  # which makes the device known to PyTorch
        place = DEVICE
    chosen = _dtype(dtype, place, lambda: _configured_dtype(folder))
    return load_general(folder, options, devices.torch_device(place), chosen, str(why).partition(";")[0])


def _dtype(dtype: str, place: str, stored: Callable[[], str]) -> str:
    if dtype != "auto":
        return dtype
    if place != "cpu":
        return stored()
    is_half = stored() in ("bfloat16", "float16")
    return "bfloat16" if is_half and not emulates("bfloat16") else "float32"


def _stored_dtype(folder: Path, spec: DecoderSpec) -> str:
    """The type of the first tensor, the embeddings: those of norms may differ."""
    _, weight = next(load_weights(folder, spec))
    return _STORED.get(weight.dtype, "bfloat16") if isinstance(weight, Weight) else "bfloat16"


def _type_in(folder: Path) -> str:
    """That of the files, whoever has the code for the model."""
    try:
        spec = read_spec(folder)
    except UnsupportedModelError:
        return _configured_dtype(folder)
    return _stored_dtype(folder, spec)


def _configured_dtype(folder: Path) -> str:
    """What config.json says of the tensors."""
    config = read_config(folder)
    named = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return named if named in DTYPES else "float32"
