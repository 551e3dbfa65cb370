"""What a backend is told about its model, and what the server does for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trireme.backends.worker_limits import WorkerLimits
from trireme.backends.worker_ports import ForkServerPort, ThreadSharesPort
from trireme.config.message import ConfigMessage
from trireme.core.ports import CustomMetricsPort, InferencePort, ModelControlPort, WorkerHealthPort
from trireme.devices.ownership import DeviceOwnership


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One version of one model in a repository."""

    name: str
    version: int
    model_dir: Path
    """The model's folder in the repository."""
    version_dir: Path
    config: ConfigMessage
    """The `inference.ModelConfig` message as parsed, normalised and validated; not to be changed."""


@dataclass(frozen=True, slots=True)
class BackendServices:
    """Handed down by whoever composes the server."""

    inference: InferencePort
    model_control: ModelControlPort
    metrics: CustomMetricsPort
    backend_config: Mapping[str, Mapping[str, str]]
    """`--backend-config`, by backend; the key "" holds settings for every backend."""
    is_auto_complete_enabled: bool
    backend_directory: Path | None = None
    """`--backend-directory`: where folders of python-based backends are, each with a model.py."""
    debug_model: str | None = None
    """The model to be run on the server's terminal, where a debugger can be used."""
    is_decoupled: Callable[[str, str], bool] | None = None
    """Whether a model (name, version or "") is decoupled, so that a call for one response is refused beforehand;
    raises ServingError where there is no such model. None: found out by the first response that is not the last."""
    verbose_level: Callable[[], int] | None = None
    """The log's verbose level of this moment; None: 0."""
    workers: WorkerHealthPort | None = None
    """Told how worker processes fare; None: nobody wants to know."""
    devices: DeviceOwnership | None = None
    """The machine's devices and who has them; None: there is the processor alone."""
    fork_server: ForkServerPort | None = None
    """Where worker processes are forked; None: each starts from scratch."""
    compat: Sequence[str] = ()
    """`--compat`, for models whose configuration does not say it."""
    worker_limits: WorkerLimits | None = None
    """What worker processes may not do or take; None: what the server may, they may."""
    has_strict_outputs: bool = False
    """Whether outputs that the configuration does not promise are errors; they are logged otherwise."""
    trusted_paths: Sequence[Path] = ()
    """Folders outside of a model's own that its configuration may name files in."""
    load_timeout_s: float = 0.0
    """How long a worker that is started again may take to be ready, where the configuration does not say; 0 is no
    limit. The first load is limited by who asks for it."""
    threads: ThreadSharesPort | None = None
    """Shares out the cores among busy workers; None: each keeps the threads that it starts with."""
