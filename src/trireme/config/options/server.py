"""Every option of the server, declared once: flags, environment names, usage text and docs come from these fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trireme.config.options.groups.access import AccessOptions, LimitOptions, WorkerOptions
from trireme.config.options.groups.frontends import GrpcOptions, HttpOptions, SagemakerOptions, VertexOptions
from trireme.config.options.groups.models import LogOptions, ProcessOptions, RepositoryOptions
from trireme.config.options.groups.operations import (
    BackendOptions,
    CacheOptions,
    DeviceOptions,
    MetricsOptions,
    RateLimitOptions,
    RepositoryAgentOptions,
    TraceOptions,
)
from trireme.config.options.option import Option, declared_options


@dataclass(frozen=True)
class ServerOptions(
    ProcessOptions,
    LogOptions,
    RepositoryOptions,
    HttpOptions,
    GrpcOptions,
    SagemakerOptions,
    VertexOptions,
    MetricsOptions,
    AccessOptions,
    WorkerOptions,
    TraceOptions,
    BackendOptions,
    RepositoryAgentOptions,
    CacheOptions,
    RateLimitOptions,
    DeviceOptions,
    LimitOptions,
):
    """What the server was started with; a field is named like its flag, with underscores. The groups stand in the order
    of the usage text."""

    notices: tuple[str, ...] = ()
    """Sentences to log as warnings at start: options that were given and have no effect."""

    @property
    def effective_metrics_address(self) -> str:
        """Where metrics listen: `--metrics-address`, or else where HTTP does."""
        return self.metrics_address or self.http_address


@cache
def server_options() -> tuple[Option, ...]:
    """All options, in the order of the usage text."""
    return tuple(entry for group in ServerOptions.__bases__ for entry in declared_options(group))
