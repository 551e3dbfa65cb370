"""The python backend's settings: `--backend-config=python,<key>=<value>`, and the parameters of a model's config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trireme.core.errors import InvalidArgumentError

DEFAULT_STOP_TIMEOUT_S = 30
DEFAULT_CONCURRENCY = 64
"""Batches at once in a model whose execute is a coroutine."""

SETTINGS_VARIABLE = "TRIREME_BACKEND_CONFIG"
"""Where a worker of a python-based backend finds that backend's `--backend-config`, as a JSON object of texts."""

_SMALLEST = {
    "shm-default-byte-size": 4 * 1024 * 1024,
    "shm-growth-byte-size": 1,
    "stub-timeout-seconds": 1,
    "shm-message-queue-size": 1,
    "thread-pool-size": 1,
}


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """What the command line says about the python backend. Triton's settings of its shared memory and its threads are
    checked and have no effect: memory here grows and shrinks by itself, and calls to other models take no threads."""

    stop_timeout_s: int = DEFAULT_STOP_TIMEOUT_S
    """`stub-timeout-seconds`: how long a model may take to finalize before it is terminated."""

    @classmethod
    def from_backend_config(cls, settings: Mapping[str, str]) -> PythonOptions:
        """Reads the settings of the backend `python`; raises ServingError for a value that does not fit its key."""
        numbers = {key: _at_least(key, settings[key], least) for key, least in _SMALLEST.items() if key in settings}
        return cls(
            stop_timeout_s=numbers.get("stub-timeout-seconds", DEFAULT_STOP_TIMEOUT_S),
        )


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """What the `parameters` of a model's configuration say to this backend."""

    execution_env_path: str = ""
    """`EXECUTION_ENV_PATH`: a folder or an archive with a Python environment; empty is the server's own."""
    is_cpu_only_input: bool = True
    """`FORCE_CPU_ONLY_INPUT_TENSORS`."""
    max_concurrency: int = DEFAULT_CONCURRENCY
    """`max_concurrency`: batches at once, for a model whose execute is a coroutine."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> ModelParameters:
        """Raises ServingError for a value that does not fit its key."""
        force = parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS", "yes")
        if force.lower() not in ("yes", "no"):
            raise InvalidArgumentError(f"Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: {force}'")
        concurrency = parameters.get("max_concurrency")
        return cls(
            execution_env_path=parameters.get("EXECUTION_ENV_PATH", ""),
            is_cpu_only_input=force.lower() == "yes",
            max_concurrency=_at_least("max_concurrency", concurrency, 1) if concurrency else DEFAULT_CONCURRENCY,
        )


def _at_least(key: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise InvalidArgumentError(f"'{key}' of the python backend must be a whole number, found '{text}'") from None
    if value < least:
        raise InvalidArgumentError(f"'{key}' of the python backend must be at least {least}, found {value}")
    return value
