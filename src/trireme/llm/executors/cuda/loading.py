"""Puts a checkpoint's weights on a GPU of NVIDIA's, and an executor around them."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from trireme.llm.executors.limits import check_room, refuse_batch_invariance, weight_count
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.executors.torch.devices import cuda_device
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.executors.torch.memory import usable_bytes, what_is_usable
from trireme.llm.executors.torch.transfer import stream
from trireme.llm.executors.torch.weights import host_tensors, packed_host_tensors
from trireme.llm.kernels import launch
from trireme.llm.kernels.launch import why_not_fp8
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix
from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import CacheType, EngineOptions

log = logging.getLogger(__name__)


def load_on_cuda(
    spec: DecoderSpec,
    weights: Iterable[tuple[str, StoredWeight]],
    options: EngineOptions,
    dtype: str,
    device: str,
    packed_bytes: int | None = None,
    float8_bytes: int = 0,
) -> Executor:
    """An executor on a GPU: with our kernels where they cover the model, else with PyTorch's.

    `packed_bytes` is what the weights of a quantized model take; only our kernels multiply with them as they are.
    `float8_bytes` of them are floats of eight bits, which older GPUs do not have.
    """
    place, kind = cuda_device(device), getattr(torch, dtype)
    usable = usable_bytes(place, options)
    share = what_is_usable(place, options)
    problem = "adapters" if options.adapters is not None else _why_not_kernels(spec, options, place)
    if problem and packed_bytes is not None:
        log.info("the model's quantized weights are unpacked to %s: our kernels do not cover %s", dtype, problem)
        packed_bytes = None
    elif packed_bytes is not None and why_not_fp8(place):
        packed_bytes += float8_bytes * (kind.itemsize - 1)  # which are unpacked
    check_room(spec, options, kind.itemsize, dtype, usable, share, packed_bytes)
    total = weight_count(spec) * kind.itemsize if packed_bytes is None else packed_bytes
    try:
        with torch.cuda.device(place):
            if problem:
                tensors = stream(host_tensors(weights, kind), place, total)
                return _with_library(spec, tensors, options, place, kind, problem)
            return _with_kernels(spec, stream(packed_host_tensors(weights), place, total), options, place, kind)
    except torch.cuda.OutOfMemoryError as error:
        raise ExecutorError(
            f"{place} has no memory left while the model is loaded; lower cache_bytes, memory_share or max_sequences: "
            f"{error}"
        ) from None


def _with_library(
    spec: DecoderSpec,
    tensors: Iterable[tuple[str, torch.Tensor]],
    options: EngineOptions,
    device: torch.device,
    dtype: torch.dtype,
    problem: str,
) -> Executor:
    refuse_batch_invariance(options, f"with PyTorch's: ours do not cover {problem}")
    log.info("%s runs on %s with PyTorch's kernels: ours do not cover %s", spec.architecture, device, problem)
    return TorchExecutor(spec, tensors, options, device, dtype)


def _with_kernels(
    spec: DecoderSpec,
    tensors: Iterable[tuple[str, torch.Tensor | PackedMatrix]],
    options: EngineOptions,
    device: torch.device,
    dtype: torch.dtype,
) -> Executor:
    from trireme.llm.executors.cuda.executor import CudaExecutor
    from trireme.llm.executors.cuda.weights import join

    log.info("%s runs on %s with our kernels, in %s", spec.architecture, device, dtype)
    joined = join(_without_fp8(tensors, device, dtype) if why_not_fp8(device) else tensors, spec, device, dtype)
    torch.cuda.current_stream(device).synchronize()  # not the device: another engine may be recording steps on it
    shorter = replace(spec, max_positions=min(spec.max_positions, options.max_length or spec.max_positions))
    return CudaExecutor(shorter, joined, options, device, dtype)


def _without_fp8(
    tensors: Iterable[tuple[str, torch.Tensor | PackedMatrix]], device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor | PackedMatrix]]:
    """The tensors, those of float8 in the type of the computation."""
    has_told = False
    for name, tensor in tensors:
        if not isinstance(tensor, PackedMatrix) or tensor.bits != "fp8":
            yield name, tensor
            continue
        if not has_told:
            log.info("weights of float8 are unpacked to %s: our kernels do not cover %s", dtype, why_not_fp8(device))
            has_told = True
        yield name, tensor.codes.to(torch.float32).mul_(tensor.scales).to(dtype)


def _why_not_kernels(spec: DecoderSpec, options: EngineOptions, device: torch.device) -> str:
    if importlib.util.find_spec("triton") is None:
        return "a machine without the Triton compiler"
    if problem := launch.why_not(device):
        return problem
    if options.cache_type is CacheType.FP8 and (problem := why_not_fp8(device)):
        return f"a cache of {problem}"
    from trireme.llm.executors.cuda.weights import why_not

    return why_not(spec)
