"""The devices that PyTorch sees, by the names that engines know."""

from __future__ import annotations

import torch

from trireme.llm.executors.port import ExecutorError


def has_cuda() -> bool:
    """Whether PyTorch sees a GPU of NVIDIA's."""
    return torch.cuda.is_available()


def place(device: str) -> str:
    """What "auto" means here; other names stay as they are."""
    return ("cuda" if has_cuda() else "cpu") if device == "auto" else device


def torch_device(name: str) -> torch.device:
    """The device of that name; raises ExecutorError where it is not there."""
    if name.startswith("cuda"):
        return cuda_device(name)
    try:
        return torch.device(name)
    except RuntimeError:  # with all names that PyTorch has ever heard of
        raise ExecutorError(f"there is no device '{name}'; use {'cuda' if has_cuda() else 'cpu'}") from None


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
