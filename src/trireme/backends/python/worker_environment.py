"""The variables a worker process starts with, and the cores it may count on."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.devices.cpu import core_count

__all__ = ["core_count", "worker_environment"]


def worker_environment(base: Mapping[str, str], instance_count: int) -> dict[str, str]:
    """The variables of a worker: the server's own, a share of the cores, and the names Hugging Face tokens go by."""
    environment = dict(base)
    thread_names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    if not any(name in environment for name in thread_names):
        threads = max(1, core_count() // max(1, instance_count))
        environment.update(dict.fromkeys(thread_names, str(threads)))
    token = environment.get("PRIVATE_REPO_TOKEN")
    if token:
        environment.setdefault("HF_TOKEN", token)
        environment.setdefault("HUGGING_FACE_HUB_TOKEN", token)
    environment.setdefault("PYTHONUNBUFFERED", "1")  # what a model prints is seen at once
    environment.setdefault("PYTHONFAULTHANDLER", "1")  # a crash in native code leaves a Python stack
    return environment
