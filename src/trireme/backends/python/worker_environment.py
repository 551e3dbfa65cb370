"""The variables a worker process starts with, and the cores it may count on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path


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


def core_count(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores this process may use: its affinity, and a container's quota where there is one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = quota_file.read_text().split()
        cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores
