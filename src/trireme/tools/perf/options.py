"""What a run is to do, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

NO_LIMIT = 0


class LoadMode(Enum):
    """What decides when a request is sent."""

    CONCURRENCY = "concurrency"
    PERIODIC_CONCURRENCY = "periodic_concurrency"
    REQUEST_RATE = "request_rate"
    INTERVALS = "intervals"
    FIXED_SCHEDULE = "fixed_schedule"


@dataclass(frozen=True, slots=True)
class Range:
    """Levels of load from `start` to `end`; an end of 0 means until the latency limit is passed."""

    start: float = 1
    end: float = 1
    step: float = 1


@dataclass(frozen=True, slots=True)
class RequestParameter:
    """A parameter of every request."""

    name: str
    value: str
    kind: str
    """bool, int or string."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How an encrypted server is talked to."""

    is_on: bool = False
    ca_file: str | None = None
    key_file: str | None = None
    certificate_file: str | None = None
    verifies_peer: bool = True
    verifies_host: bool = True


@dataclass(frozen=True, slots=True)
class MeasurementOptions:
    """How long is measured, and when the result is believed."""

    counts_requests: bool = False
    """Windows of at least `window_requests`, in place of windows of `window_ms`."""
    window_ms: int = 5000
    window_requests: int = 50
    stability_percent: float = 10.0
    max_trials: int = 10
    percentile: int | None = None
    """Stability is judged by this percentile of the latency, in place of the average."""
    request_count: int = 0
    """Exactly so many requests, in one window; 0 for windows until the result is stable."""
    warmup_request_count: int = 0
    latency_limit_ms: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Where the tensors of requests come from."""

    sources: tuple[str, ...] = ("random",)
    """`zero`, `random`, a folder, or JSON files."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    string_length: int = 128
    string_data: str | None = None
    batch_size: int = 1
    is_batch_size_given: bool = False
    uses_json_inputs: bool = False
    uses_json_outputs: bool = False
    shared_memory: str = "none"
    output_region_bytes: int = 102400


@dataclass(frozen=True, slots=True)
class SequenceOptions:
    """The sequences that stateful models get."""

    length: int = 20
    is_length_given: bool = False
    variation_percent: float = 20.0
    first_id: int = 1
    id_count: int | None = None
    """How many ids there are; None for no end."""
    count: int = 4
    """Sequences at a time where requests are sent at a rate."""
    is_serial: bool = False


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Whether the server's metrics page is read along."""

    is_on: bool = False
    url: str = "localhost:8002/metrics"
    interval_ms: int = 1000


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Where results go."""

    csv_file: str | None = None
    is_csv_verbose: bool = False
    profile_file: str | None = None
    histogram_file: str | None = None
    verbosity: int = 0
    shows_progress: bool | None = None
    """How the run stands, on stderr; None: in place on a terminal, a line now and then elsewhere."""


@dataclass(frozen=True, slots=True)
class PerfOptions:
    """All of a command line."""

    model_name: str = ""
    model_version: str = ""
    service_kind: str = "triton"
    protocol: str = "http"
    url: str = "localhost:8000"
    endpoint: str = ""
    grpc_method: str = ""
    """`package.Service/Method` of a service of the user's own."""
    signature_name: str = "serving_default"
    """Of a saved model of TensorFlow Serving."""
    model_repository: str = ""
    """Where there is no server yet, and one is started for the measurement."""
    headers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[RequestParameter, ...] = ()
    grpc_compression: str | None = None
    tls: TlsOptions = TlsOptions()
    is_async: bool = False
    is_forced_sync: bool = False
    is_streaming: bool = False
    mode: LoadMode = LoadMode.CONCURRENCY
    concurrency: Range = Range()
    periodic: Range = Range()
    request_period: int = 10
    request_rate: Range = Range()
    distribution: str = "constant"
    intervals_file: str | None = None
    session_concurrency: int = 0
    is_binary_search: bool = False
    max_threads: int = 16
    """As given; load comes from one event loop, so this only bounds a search without end."""
    composing_models: tuple[tuple[str, str], ...] = ()
    """Name and version of the models that the model calls by itself."""
    trace_settings: dict[str, list[str]] = field(default_factory=dict)
    seed: int = 0
    measurement: MeasurementOptions = MeasurementOptions()
    inputs: InputOptions = InputOptions()
    sequences: SequenceOptions = SequenceOptions()
    metrics: MetricsOptions = MetricsOptions()
    report: ReportOptions = ReportOptions()
