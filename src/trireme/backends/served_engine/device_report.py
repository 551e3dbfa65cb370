"""What the server hears of an engine's devices, which an engine may have chosen itself."""

from __future__ import annotations

from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.llm.executor_choice import devices_in_use
from trireme.llm.executors.port import Executor


def report_devices(executor: Executor, device: str) -> None:
    """Notes, for when the worker says that it is ready, what the executor that was loaded for `device` computes on."""
    pb_runtime.current().devices = devices_in_use(executor, device)
