"""What an analysis is to do, as flags and the configuration file say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trireme.tools.analyze.metrics import GPU_FIELDS, INFERENCE_FIELDS, SERVER_FIELDS

SEARCH_MODES = ("fit", "brute", "quick", "optuna")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Bounds of one metric."""

    tag: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Goals:
    """What makes a result good, and what makes it acceptable."""

    objectives: Mapping[str, float] = field(default_factory=dict)
    """Weights by tag; empty for throughput, of a language model that of tokens."""
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """One model of `profile_models`."""

    name: str
    goals: Goals = Goals()
    weighting: float = 1.0
    concurrencies: tuple[int, ...] = ()
    """Empty: searched."""
    batch_sizes: tuple[int, ...] = (1,)
    request_rates: tuple[float, ...] = ()
    config_parameters: Mapping[str, Any] | None = None
    """Fields of the configuration with the values to try, where the user has chosen them."""
    perf_flags: tuple[str, ...] = ()
    """Words for the load generator."""
    is_cpu_only: bool = False


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Where is searched, and how."""

    mode: str | None = None
    """None: fit for single models, quick for those that are tuned together."""
    min_concurrency: int = 1
    max_concurrency: int = 1024
    min_instances: int = 1
    max_instances: int = 5
    min_batch_size: int = 1
    max_batch_size: int = 128
    min_request_rate: int = 16
    max_request_rate: int = 8192
    by_request_rate: bool = False
    is_disabled: bool = False
    """Only what the file lists is measured."""
    exits_early: bool = True
    """Brute: a series of loads or batch sizes ends where nothing is gained any more."""
    is_together: bool = False
    """All models are tuned at once, each under load."""
    min_sequences: int = 4
    max_sequences: int = 256
    min_share: float = 5.0
    max_share: float = 10.0
    """Of the search space, in percent, for optuna's mode."""
    min_trials: int = 20
    max_trials: int = 200
    early_exit_trials: int = 10
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Which server is measured."""

    launch_mode: str = "local"
    http_url: str | None = None
    grpc_url: str | None = None
    metrics_url: str | None = None
    protocol: str = "grpc"
    headers: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    program: str | None = None
    """The executable that local mode starts; None: this installation's server."""
    flags: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    log_file: str | None = None
    max_retries: int = 50
    is_reload_disabled: bool = False


@dataclass(frozen=True, slots=True)
class MeasuringOptions:
    """How long each load is measured."""

    window_ms: int | None = None
    """None: chosen from the model's latency."""
    stability_percent: float = 10.0
    max_trials: int = 6
    max_adjustments: int = 10
    timeout_s: float = 600.0
    metrics_interval_s: float = 1.0
    idle_s: float = 1.0
    """How long the server is watched without load."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Where results go."""

    export_path: str = "."
    checkpoint_folder: str = "checkpoints"
    output_repository: str = "output_model_repository"
    may_override: bool = False
    inference_file: str = "metrics-model-inference.csv"
    gpu_file: str = "metrics-model-gpu.csv"
    server_file: str = "metrics-server-only.csv"
    inference_fields: tuple[str, ...] = INFERENCE_FIELDS
    gpu_fields: tuple[str, ...] = GPU_FIELDS
    server_fields: tuple[str, ...] = SERVER_FIELDS
    configs_per_model: int = 3
    top_configs: int = 0
    has_summary: bool = True
    has_details: bool = True
    formats: tuple[str, ...] = ("html",)
    verbosity: int = 0
    """-1 for results alone."""
    shows_progress: bool | None = None


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """A whole command line."""

    models: tuple[ModelOptions, ...] = ()
    repository: str | None = None
    place: ServerPlace = ServerPlace()
    search: SearchOptions = SearchOptions()
    measuring: MeasuringOptions = MeasuringOptions()
    output: OutputOptions = OutputOptions()
    called_models: tuple[str, ...] = ()
    """Models that a BLS model calls: tuned with it."""
    cpu_only_called: tuple[str, ...] = ()
    applies: bool = False
    ignores_checkpoint: bool = False
