"""What each room is told of the server's options."""

from __future__ import annotations

from pathlib import Path

from trireme.config.options.server import ServerOptions
from trireme.frontends.connection_slots import ConnectionSlots, create_slots
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.http.options import ConnectionLimits, HttpFrontendOptions, MetricsFrontendOptions
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.pace import PaceLimits
from trireme.frontends.tls import TlsOptions
from trireme.machine.host_memory import free_host_bytes
from trireme.observe.logs import LogSettings
from trireme.observe.metrics_options import MetricsOptions
from trireme.registry.options import OnDemandOptions, RegistryOptions

_LEAST_INFLIGHT_BYTES = 256 << 20
_USUAL_MEMORY_BYTES = 8 << 30


def log_settings(options: ServerOptions) -> LogSettings:
    """The log as it begins; it can be changed while the server runs."""
    return LogSettings(
        log_file=options.log_file or "",
        log_info=options.log_info,
        log_warning=options.log_warning,
        log_error=options.log_error,
        log_verbose_level=options.log_verbose,
        log_format=options.log_format,
    )


def metrics_options(options: ServerOptions) -> MetricsOptions:
    chosen = options.metrics_config
    return MetricsOptions(
        counter_latencies=chosen.counter_latencies,
        histogram_latencies=chosen.histogram_latencies,
        summary_latencies=chosen.summary_latencies,
        summary_quantiles=tuple(quantile for quantile, _ in chosen.summary_quantiles),
        has_cpu_metrics=options.allow_cpu_metrics,
        interval_ms=int(options.metrics_interval_ms),
        pinned_memory_pool_bytes=options.pinned_memory_pool_byte_size,
    )


def registry_options(options: ServerOptions, gpu_count: int = 0) -> RegistryOptions:
    return RegistryOptions(
        repositories=tuple(Path(path) for path in options.model_repository),
        control_mode=options.model_control_mode,  # type: ignore[arg-type]
        startup_models=options.load_model,
        poll_seconds=options.repository_poll_secs,
        retries_unchanged=not options.watch,
        is_auto_complete_enabled=not options.disable_auto_complete_config,
        config_name=options.model_config_name,
        load_concurrency=options.model_load_thread_count,
        load_slot_s=options.model_load_slot_time,
        load_timeout_s=options.model_load_timeout,
        load_retry_count=options.model_load_retry_count,
        has_namespacing=options.model_namespacing,
        is_strict_readiness=options.strict_readiness,
        gpu_count=gpu_count,
        on_demand=on_demand_options(options),
    )


def on_demand_options(options: ServerOptions) -> OnDemandOptions:
    return OnDemandOptions(
        queue_size=options.on_demand_queue_size,
        load_timeout_s=options.on_demand_load_timeout,
        backoff_s=options.on_demand_backoff,
        memory_budget_bytes=options.on_demand_memory_budget,
        ttl_s=options.on_demand_ttl,
        pinned=options.pin_model,
    )


def http_options(options: ServerOptions) -> HttpFrontendOptions:
    return HttpFrontendOptions(
        address=options.http_address,
        port=options.http_port,
        reuse_port=options.reuse_http_port,
        max_input_size_bytes=options.http_max_input_size,
        header_forward_pattern=options.http_header_forward_pattern,
        restricted_apis={api: (entry.header, entry.value) for api, entry in options.http_restricted_api.items()},
        limits=ConnectionLimits(max_body_bytes=options.http_max_binary_size, pace=pace_limits(options)),
        tls=http_tls(options),
    )


def http_tls(options: ServerOptions) -> TlsOptions | None:
    if not (options.http_use_ssl or options.http_use_ssl_mutual):
        return None
    root = options.http_root_cert if options.http_use_ssl_mutual else ""
    return TlsOptions("HTTP", options.http_server_cert, options.http_server_key, root)


def metrics_tls(options: ServerOptions) -> TlsOptions | None:
    if not (options.metrics_use_ssl or options.metrics_use_ssl_mutual):
        return None
    root = options.metrics_root_cert or options.http_root_cert if options.metrics_use_ssl_mutual else ""
    certificate = options.metrics_server_cert or options.http_server_cert
    key = options.metrics_server_key or options.http_server_key
    return TlsOptions("metrics", certificate, key, root)


def metrics_frontend_options(options: ServerOptions) -> MetricsFrontendOptions:
    return MetricsFrontendOptions(
        address=options.effective_metrics_address,
        port=options.metrics_port,
        tls=metrics_tls(options),
        limits=ConnectionLimits(pace=pace_limits(options)),
    )


def pace_limits(options: ServerOptions) -> PaceLimits:
    return PaceLimits(
        idle_timeout_s=options.connection_idle_timeout,
        header_timeout_s=options.request_header_timeout,
        min_bytes_per_s=options.min_transfer_rate,
    )


def inflight_bytes(options: ServerOptions) -> InflightBytes:
    """What requests may take: by default half of the memory that is free now, and half of that for a connection."""
    limit = options.max_inflight_bytes
    if limit is None:
        limit = max(_LEAST_INFLIGHT_BYTES, (free_host_bytes() or _USUAL_MEMORY_BYTES) // 2)
    of_connection = options.max_connection_inflight_bytes
    return InflightBytes(limit, limit // 2 if of_connection is None else of_connection)


def connection_slots(options: ServerOptions) -> ConnectionSlots:
    """To be asked for once models have the descriptors that they need."""
    return create_slots(options.max_connections, options.max_connections_per_address)


def grpc_options(options: ServerOptions) -> GrpcFrontendOptions:
    restricted = options.grpc_restricted_protocol.items()
    return GrpcFrontendOptions(
        address=options.grpc_address,
        port=options.grpc_port,
        reuse_port=options.reuse_grpc_port,
        header_forward_pattern=options.grpc_header_forward_pattern,
        restricted_protocols={api: (entry.header, entry.value) for api, entry in restricted},
        use_ssl=options.grpc_use_ssl,
        use_ssl_mutual=options.grpc_use_ssl_mutual,
        server_cert=options.grpc_server_cert,
        server_key=options.grpc_server_key,
        root_cert=options.grpc_root_cert,
        infer_response_compression_level=options.grpc_infer_response_compression_level,
        keepalive_time_ms=options.grpc_keepalive_time,
        keepalive_timeout_ms=options.grpc_keepalive_timeout,
        keepalive_permit_without_calls=options.grpc_keepalive_permit_without_calls,
        http2_max_pings_without_data=options.grpc_http2_max_pings_without_data,
        http2_min_recv_ping_interval_without_data_ms=options.grpc_http2_min_recv_ping_interval_without_data,
        http2_max_ping_strikes=options.grpc_http2_max_ping_strikes,
        max_connection_age_ms=options.grpc_max_connection_age,
        max_connection_age_grace_ms=options.grpc_max_connection_age_grace,
        pace=pace_limits(options),
    )
