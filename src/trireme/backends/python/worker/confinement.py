"""The limits of a worker process, which it gives itself before it reads the model's code, and cannot take back."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

VARIABLE: Final = "TRIREME_WORKER_CONFINEMENT"
"""Where a worker finds its limits, as JSON; it is gone when the model runs."""

_PR_SET_DUMPABLE: Final = 4


def confine() -> None:
    """Applies the limits of the environment; raises OSError where the system does not let it."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return
    limits: dict[str, Any] = json.loads(text)
    _limit_resource("RLIMIT_DATA", limits.get("memory_bytes"))
    _limit_resource("RLIMIT_NOFILE", limits.get("open_files"))
    if limits.get("uid") is not None:
        _become(limits["uid"], limits["gid"], limits["groups"])
    if not limits.get("has_network", True):
        from trireme.backends.python.worker.network_filter import cut_network

        cut_network()


def _limit_resource(name: str, value: int | None) -> None:
    """The hard limit as well, which only a privileged process can raise again."""
    if value is not None:
        import resource

        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (wanted, wanted))


def _become(uid: int, gid: int, groups: list[int]) -> None:
    import asyncio  # what a worker imports late and the user may not be able to read
    import traceback

    assert asyncio
    assert traceback
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)
    if sys.platform == "linux":
        import ctypes

        # The kernel hides /proc/self from a process that has changed its user, and libraries read it.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
