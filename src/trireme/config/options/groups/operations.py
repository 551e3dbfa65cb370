"""Options about operating the server: metrics, tracing, backends, cache, rate limits, devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trireme.config.compat_words import MEANINGS
from trireme.config.options.option import option
from trireme.config.options.setting_values import (
    BACKEND_SETTINGS,
    CACHE_SETTINGS,
    COMPAT_WORDS,
    HOST_POLICIES,
    METRICS_SETTINGS,
    RESOURCES,
    CacheSettings,
    MetricsSettings,
    RateLimitResource,
)
from trireme.config.options.trace import TRACE_SETTINGS, TraceSettings
from trireme.config.options.values import (
    BOOLEAN,
    COUNT,
    DEVICE_FRACTIONS,
    DEVICE_SIZES,
    NUMBER,
    PORT,
    REQUIRED_TEXT,
    TEXT,
    choice,
)

_NO_POOL = "the server keeps no such pool; models allocate their own memory"
_BUILT_IN = "what can be loaded is part of the package"


@dataclass(frozen=True)
class MetricsOptions:
    """The metrics endpoint and what it shows."""

    TITLE: ClassVar[str] = "Metrics"

    allow_metrics: bool = option(True, BOOLEAN, "Whether metrics are served.")
    allow_gpu_metrics: bool = option(True, BOOLEAN, "Whether GPUs and other accelerators are measured.")
    allow_cpu_metrics: bool = option(True, BOOLEAN, "Whether the CPU and memory are measured.")
    metrics_address: str | None = option(None, REQUIRED_TEXT, "The address metrics listen on; that of HTTP otherwise.")
    metrics_port: int = option(8002, PORT, "The port metrics listen on.")
    metrics_use_ssl: bool = option(False, BOOLEAN, "Whether metrics are served over TLS.", is_extension=True)
    metrics_use_ssl_mutual: bool = option(
        False, BOOLEAN, "Whether whoever reads metrics must show a certificate.", is_extension=True
    )
    metrics_server_cert: str = option(
        "", TEXT, "The server's certificate, a PEM file; that of HTTP otherwise.", is_extension=True
    )
    metrics_server_key: str = option(
        "", TEXT, "The server's private key, a PEM file; that of HTTP otherwise.", is_extension=True
    )
    metrics_root_cert: str = option(
        "", TEXT, "The root certificates of readers, a PEM file; those of HTTP otherwise.", is_extension=True
    )
    metrics_interval_ms: float = option(2000.0, NUMBER, "Milliseconds between two measurements of devices.")
    metrics_config: MetricsSettings = option(  # noqa: RUF009
        MetricsSettings(),
        METRICS_SETTINGS,
        "counter_latencies, histogram_latencies and summary_latencies switch families on or off; summary_quantiles "
        "is a list of <quantile>:<error>.",
    )


@dataclass(frozen=True)
class TraceOptions:
    """Tracing of requests."""

    TITLE: ClassVar[str] = "Tracing"

    trace_config: TraceSettings = option(  # noqa: RUF009
        TraceSettings(),
        TRACE_SETTINGS,
        "mode, level, rate and count for all modes; triton,file and triton,log-frequency; opentelemetry,url, "
        "opentelemetry,resource=<key>=<value> and the bsp_ settings.",
    )


@dataclass(frozen=True)
class BackendOptions:
    """Backends and their settings."""

    TITLE: ClassVar[str] = "Backend"

    backend_directory: str = option(
        "/opt/tritonserver/backends",
        TEXT,
        "Where python-based backends are: <folder>/<backend>/model.py runs the models that name the backend.",
    )
    backend_config: Mapping[str, Mapping[str, str]] = option(
        {}, BACKEND_SETTINGS, "A setting for one backend, <backend>,<setting>=<value>, or for all, <setting>=<value>."
    )
    strict_model_outputs: bool = option(
        False,
        BOOLEAN,
        "Whether a request fails where a model's output has a name, datatype or shape that its configuration "
        "does not promise; it is logged once otherwise. True by default under trireme serve.",
        is_extension=True,
    )
    compat: tuple[str, ...] = option(
        (),
        COMPAT_WORDS,
        "What workers do to models on request, words with commas between them: " + ", ".join(MEANINGS) + ". The "
        "parameter compat of a model's configuration comes before it.",
        is_extension=True,
    )


@dataclass(frozen=True)
class RepositoryAgentOptions:
    """Repository agents."""

    TITLE: ClassVar[str] = "Repository Agent"

    repoagent_directory: str = option(
        "/opt/tritonserver/repoagents", TEXT, "Where shared libraries of agents are.", ignored=_BUILT_IN
    )


@dataclass(frozen=True)
class CacheOptions:
    """The response cache."""

    TITLE: ClassVar[str] = "Response Cache"

    cache_config: CacheSettings | None = option(  # noqa: RUF009
        None,
        CACHE_SETTINGS,
        "The response cache and its settings: local,size=<bytes>, or redis,host=<name> and redis,port=<number>.",
    )
    cache_directory: str = option(
        "/opt/tritonserver/caches", TEXT, "Where shared libraries of caches are.", ignored=_BUILT_IN
    )


@dataclass(frozen=True)
class RateLimitOptions:
    """The rate limiter."""

    TITLE: ClassVar[str] = "Rate Limiter"

    rate_limit: str = option(
        "off",
        choice("off", "execution_count"),
        "Whether executions are limited by resources and priorities of instance groups.",
    )
    rate_limit_resource: tuple[RateLimitResource, ...] = option(
        (),
        RESOURCES,
        "A resource and how much there is of it, <name>:<count>[:<device>]; names are compared without case.",
    )


@dataclass(frozen=True)
class DeviceOptions:
    """Memory and devices."""

    TITLE: ClassVar[str] = "Memory/Device Management"

    devices: str | None = option(
        None,
        TEXT,
        "The accelerators to work with instead of those that the machine has, to try placements without them: "
        "cuda:2,hpu:1,neuron:4x4 are two GPUs, a Gaudi and four Neuron devices of four cores; cpu is none.",
        is_extension=True,
    )
    allow_client_shm: bool = option(
        False, BOOLEAN, "Whether clients may register shared memory, of the system and of GPUs, and put tensors in it."
    )
    pinned_memory_pool_byte_size: int = option(268435456, COUNT, "Pinned host memory to set aside.", ignored=_NO_POOL)
    cuda_memory_pool_byte_size: Mapping[int, int] = option(
        {}, DEVICE_SIZES, "GPU memory to set aside, <gpu>:<bytes>.", ignored=_NO_POOL
    )
    cuda_virtual_address_size: Mapping[int, int] = option(
        {}, DEVICE_SIZES, "GPU addresses to set aside, <gpu>:<bytes>.", ignored=_NO_POOL
    )
    min_supported_compute_capability: float = option(
        0.0, NUMBER, "GPUs below this compute capability are not used.", ignored="models choose their GPUs"
    )
    buffer_manager_thread_count: int = option(
        0, COUNT, "Threads that copy tensors.", ignored="tensors reach a model without such copies"
    )
    host_policy: Mapping[str, Mapping[str, str]] = option(
        {},
        HOST_POLICIES,
        "Where instances of a policy run: <policy>,numa-node=<n> or <policy>,cpu-cores=<first>-<last>.",
        ignored="this version leaves the placement of processes to the operating system",
    )
    model_load_gpu_limit: Mapping[int, float] = option(
        {},
        DEVICE_FRACTIONS,
        "The share of a GPU's memory above which no model is loaded, <gpu>:<fraction>.",
        ignored="models allocate their own GPU memory",
    )
