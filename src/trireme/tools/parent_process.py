"""A child that ends when the process that has started it does, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = "TRIREME_PARENT_PROCESS"
_PR_SET_PDEATHSIG: Final = 1


def variables_for_child() -> Mapping[str, str]:
    """What is to be among a child's variables: nothing where it is not started in the main thread, because Linux counts
    the end of the thread that has started it as its parent's."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return {}
    return {_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Called by the child before anything else: it is told to end, as by SIGTERM, when its parent is gone."""
    parent = os.environ.pop(_VARIABLE, "")
    if sys.platform != "linux" or not parent:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if str(os.getppid()) != parent:  # gone before it was asked for
        raise SystemExit(128 + signal.SIGTERM)
