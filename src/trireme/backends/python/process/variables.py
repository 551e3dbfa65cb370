"""The variables a worker process starts with, and the cores it may count on."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trireme.backends.python.compat import VARIABLE as COMPAT_VARIABLE
from trireme.config.compat_words import TOKEN
from trireme.core.threads.variables import OPENMP, THREAD_VARIABLES
from trireme.devices.cpu import core_count

__all__ = ["SHARE_VARIABLE", "THREAD_VARIABLES", "core_count", "thread_share", "worker_environment"]

SHARE_VARIABLE = OPENMP
"""Where a worker finds its share of the cores. MKL and OpenBLAS look there too, behind variables of their own, which
are not set: they would outdo what a model puts here."""


def thread_share(base: Mapping[str, str], instance_count: int) -> int | None:
    """The threads that a worker computes with at first; None where `base` says it, as the server's user wants it."""
    if any(name in base for name in THREAD_VARIABLES):
        return None
    return max(1, core_count() // max(1, instance_count))


def worker_environment(base: Mapping[str, str], instance_count: int, compat: Collection[str] = ()) -> dict[str, str]:
    """The variables of a worker: the server's own, a share of the cores, the words of `compat` that hold for its model,
    and with one of them the names that Hugging Face tokens go by."""
    environment = dict(base)
    threads = thread_share(base, instance_count)
    if threads is not None:
        environment[SHARE_VARIABLE] = str(threads)
    environment[COMPAT_VARIABLE] = ",".join(sorted(compat))
    token = environment.get("PRIVATE_REPO_TOKEN")
    if token and TOKEN in compat:
        environment.setdefault("HF_TOKEN", token)
        environment.setdefault("HUGGING_FACE_HUB_TOKEN", token)
    environment.setdefault("PYTHONUNBUFFERED", "1")  # what a model prints is seen at once
    environment.setdefault("PYTHONFAULTHANDLER", "1")  # a crash in native code leaves a Python stack
    return environment
