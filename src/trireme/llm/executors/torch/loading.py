"""Puts a checkpoint's weights where PyTorch computes, and an executor around them."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from trireme.llm.executors.limits import check_room, refuse_batch_invariance, weight_count
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.executors.torch.memory import usable_bytes
from trireme.llm.executors.torch.transfer import stream
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.checkpoint import Weight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.machine.host_memory import free_host_bytes

log = logging.getLogger(__name__)

Weights = Iterable[tuple[str, Weight]]


def has_cuda() -> bool:
    """Whether PyTorch sees a GPU of NVIDIA's."""
    return torch.cuda.is_available()


def place(device: str) -> str:
    """What "auto" means here; other names stay as they are."""
    return ("cuda" if has_cuda() else "cpu") if device == "auto" else device


def torch_device(name: str) -> torch.device:
    """The device of that name; raises ExecutorError where it is not there."""
    return cuda_device(name) if name.startswith("cuda") else torch.device(name)


def load_on_cpu(spec: DecoderSpec, weights: Weights, options: EngineOptions, dtype: str) -> Executor:
    """An executor on the processor; raises ExecutorError where the memory is too small."""
    kind = getattr(torch, dtype)
    check_room(spec, options, kind.itemsize, dtype, free_host_bytes(), "the machine has {} of memory free")
    log.info("%s runs on the CPU with PyTorch, in %s", spec.architecture, dtype)
    return TorchExecutor(spec, host_tensors(weights), options, torch.device("cpu"), kind)


def load_on_cuda(spec: DecoderSpec, weights: Weights, options: EngineOptions, dtype: str, device: str) -> Executor:
    """An executor on a GPU: with our kernels where they cover the model, else with PyTorch's."""
    place, kind = cuda_device(device), getattr(torch, dtype)
    usable = usable_bytes(place, options)
    share = f"{options.memory_share:.0%} of {place} leave {{}} for it (memory_share)"
    check_room(spec, options, kind.itemsize, dtype, usable, share)
    tensors = stream(host_tensors(weights), place, weight_count(spec) * kind.itemsize)
    try:
        with torch.cuda.device(place):
            return _on_cuda(spec, tensors, options, place, kind)
    except torch.cuda.OutOfMemoryError as error:
        raise ExecutorError(
            f"{place} has no memory left while the model is loaded; lower cache_bytes, memory_share or max_sequences: "
            f"{error}"
        ) from None


def _on_cuda(
    spec: DecoderSpec,
    tensors: Iterator[tuple[str, torch.Tensor]],
    options: EngineOptions,
    device: torch.device,
    dtype: torch.dtype,
) -> Executor:
    problem = _why_not_kernels(spec)
    if problem:
        refuse_batch_invariance(options, f"with PyTorch's: ours do not cover {problem}")
        log.info("%s runs on %s with PyTorch's kernels: ours do not cover %s", spec.architecture, device, problem)
        return TorchExecutor(spec, tensors, options, device, dtype)
    from trireme.llm.executors.cuda.executor import CudaExecutor
    from trireme.llm.executors.cuda.weights import join

    log.info("%s runs on %s with our kernels, in %s", spec.architecture, device, dtype)
    joined = join(tensors, spec, device, dtype)
    torch.cuda.synchronize(device)
    shorter = replace(spec, max_positions=min(spec.max_positions, options.max_length or spec.max_positions))
    return CudaExecutor(shorter, joined, options, device, dtype)


def _why_not_kernels(spec: DecoderSpec) -> str:
    if importlib.util.find_spec("triton") is None:
        return "a machine without the Triton compiler"
    from trireme.llm.executors.cuda.weights import why_not

    return why_not(spec)


def cuda_device(name: str) -> torch.device:
    """The GPU of that name; raises ExecutorError where there is none."""
    if not has_cuda():
        reason = "it was built without CUDA" if torch.version.cuda is None else "it sees no GPU"
        raise ExecutorError(f"there is no device '{name}' for PyTorch {torch.__version__}: {reason}; use 'cpu'")
    number = int(name.partition(":")[2] or 0)
    count = torch.cuda.device_count()
    if number >= count:
        known = ", ".join(f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in range(count))
        raise ExecutorError(f"there is no device '{name}'; this machine has {known}")
    return torch.device("cuda", number)
