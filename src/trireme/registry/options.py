"""What the command line decides about models: where they are, which are loaded, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ControlMode = Literal["none", "poll", "explicit", "auto"]

EVERY_MODEL = "*"
"""The start-up model name that stands for every model of the repositories."""


@dataclass(frozen=True, slots=True)
class OnDemandOptions:
    """The bounds within which models come and go."""

    queue_size: int = 100
    """How many requests may wait for one model."""
    load_timeout_s: float = 60.0
    """How long each of them waits."""
    backoff_s: float = 10.0
    """How long a load that failed is not tried again."""
    memory_budget_bytes: int = 0
    """What all workers together may have resident; 0 is no limit."""
    ttl_s: float = 0.0
    """How long a model may be idle; 0 is for ever."""
    pinned: tuple[str, ...] = ()
    """Models that are loaded at the start and stay."""
    sweep_interval_s: float = 1.0
    """How often idle times, memory and folders are looked at; a shorter time to live is looked at more often."""

    @property
    def effective_sweep_s(self) -> float:
        """The interval that does justice to the time to live."""
        return min(self.sweep_interval_s, max(0.02, self.ttl_s / 4)) if self.ttl_s > 0 else self.sweep_interval_s


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
    retries_unchanged: bool = True
    """Poll mode: whether what failed is tried again now and then though its files are the same."""
    is_auto_complete_enabled: bool = True
    """Whether configurations may be absent or partial, to be completed by the files and the model."""
    config_name: str | None = None
    """Prefers `configs/<name>.pbtxt` to `config.pbtxt`."""
    load_concurrency: int = 4
    """How many model versions load at the same time."""
    load_slot_s: float = 60.0
    """After how long a load counts no longer among these; 0 is never."""
    load_timeout_s: float = 0.0
    """How long a version may take to load; 0 is no limit. A model's configuration may say otherwise."""
    load_retry_count: int = 0
    """How often the load of a version is tried again after it failed."""
    has_namespacing: bool = False
    """Whether the same name in two repositories is two models."""
    is_strict_readiness: bool = True
    """Whether the server is ready only while all of its models are."""
    gpu_count: int = 0
    """Devices that instance groups may name."""
    on_demand: OnDemandOptions = OnDemandOptions()
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
