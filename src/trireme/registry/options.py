"""What the command line decides about models: where they are, which are loaded, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trireme.registry.on_demand_options import OnDemandOptions

ControlMode = Literal["none", "poll", "explicit", "auto"]

EVERY_MODEL = "*"
"""The start-up model name that stands for every model of the repositories."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The registry's part of the server's options."""

    repositories: tuple[Path, ...]
    """Folders whose sub-folders are models."""
    control_mode: ControlMode = "none"
    """Whether models change after the start, and who says so: nobody, the file system, the API, or every request."""
    startup_models: tuple[str, ...] = ()
    """Explicit mode: the models to load at the start; `*` alone is every model."""
    poll_seconds: float = 15
    """Poll mode: how long to wait between looks at the repositories; 0 never looks."""
    is_auto_complete_enabled: bool = True
    """Whether configurations may be absent or partial, to be completed by the files and the model."""
    config_name: str | None = None
    """Prefers `configs/<name>.pbtxt` to `config.pbtxt`."""
    load_concurrency: int = 4
    """How many model versions load at the same time."""
    load_retry_count: int = 0
    """How often the load of a version is tried again after it failed."""
    has_namespacing: bool = False
    """Whether the same name in two repositories is two models."""
    is_strict_readiness: bool = True
    """Whether the server is ready only while all of its models are."""
    gpu_count: int = 0
    """Devices that instance groups may name."""
    on_demand: OnDemandOptions = OnDemandOptions()  # noqa: RUF009 - a frozen value
    """Auto mode: how models come and go with their requests."""

    @property
    def loads_every_model(self) -> bool:
        """Whether the start loads whatever the repositories hold."""
        if self.control_mode == "auto":
            return False
        return self.control_mode != "explicit" or EVERY_MODEL in self.startup_models

    @property
    def is_on_demand(self) -> bool:
        """Whether requests load the models they need."""
        return self.control_mode == "auto"

    @property
    def allows_control(self) -> bool:
        """Whether the API may load and unload."""
        return self.control_mode in ("explicit", "auto")
