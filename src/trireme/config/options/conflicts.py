"""Options that are each well formed and cannot stand together, or not on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from trireme.config.options.option import OptionError, OptionStatus
from trireme.config.options.server import ServerOptions, server_options

_Service = tuple[str, bool, str, int]
"""A service's name, whether it is open, and its address and port."""
_CLOUD_STORAGE: Final = ("gs://", "s3://", "as://")
_SERVED: Final = {"http": "HTTP is served", "grpc": "gRPC is served", "metrics": "metrics are served"}


def check_conflicts(options: ServerOptions) -> None:
    """Raises OptionError for the first thing that cannot be."""
    _check_refused(options)
    _check_files(options)
    _check_start_up_models(options)
    _check_addresses(options)


def check_repository_given(options: ServerOptions) -> None:
    """Raises OptionError where nothing is to be served, or what lies elsewhere."""
    if not options.model_repository:
        raise OptionError(
            "error: creating server: Invalid argument - --model-repository must be specified", shows_usage=False
        )
    for place in options.model_repository:
        if place.startswith(_CLOUD_STORAGE):
            raise OptionError(
                f"error: creating server: Invalid argument - the repository '{place}' is in cloud storage, which is "
                "not read: copy it into a folder, or mount it, and name that with --model-repository",
                shows_usage=False,
            )


def _check_refused(options: ServerOptions) -> None:
    for entry in server_options():
        asked = entry.asks_for_something(getattr(options, entry.field_name))
        if asked and entry.status is OptionStatus.REFUSED:
            raise OptionError(f"error: --{entry.flag} cannot be used: {entry.reason}", shows_usage=False)


def _check_files(options: ServerOptions) -> None:
    """Names the file that is missing; without this, TLS would fail after the models have loaded."""
    for service in ("grpc", "http", "metrics"):
        is_mutual = getattr(options, f"{service}_use_ssl_mutual")
        is_used = is_mutual or getattr(options, f"{service}_use_ssl")
        for name, is_needed in (("server_cert", is_used), ("server_key", is_used), ("root_cert", is_mutual)):
            path, flag = getattr(options, f"{service}_{name}"), f"{service}_{name}".replace("_", "-")
            if is_needed and not (path or (service == "metrics" and getattr(options, f"http_{name}"))):
                raise OptionError(f"error: TLS needs --{flag}", shows_usage=False)
            if path and not Path(path).is_file():
                raise OptionError(f"error: --{flag}: there is no file '{path}'", shows_usage=False)


def _check_start_up_models(options: ServerOptions) -> None:
    if options.load_model and options.model_control_mode != "explicit":
        raise OptionError("Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
    if options.pin_model and options.model_control_mode != "auto":
        raise OptionError("Error: Use of '--pin-model' requires setting '--model-control-mode=auto' as well.")
    if "*" in options.load_model and len(set(options.load_model)) > 1:
        raise OptionError(
            "error: creating server: Invalid argument - Wildcard model name '*' must be the ONLY startup model "
            "if specified at all.",
            shows_usage=False,
        )


def _check_addresses(options: ServerOptions) -> None:
    services: list[_Service] = [
        ("HTTP", options.allow_http, options.http_address, options.http_port),
        ("GRPC", options.allow_grpc, options.grpc_address, options.grpc_port),
        ("SageMaker", options.allow_sagemaker, options.http_address, options.sagemaker_port),
        ("Vertex AI", options.allow_vertex_ai, options.http_address, options.vertex_ai_port),
        ("metrics", options.allow_metrics, options.effective_metrics_address, options.metrics_port),
    ]
    _check_safe_ports(options, services)
    for first, second in combinations([service for service in services if service[1]], 2):
        if first[2:] == second[2:] and first[3] != 0:
            raise OptionError(
                f"The server cannot listen to {first[0]} requests and {second[0]} requests "
                f"at the same address and port {first[2]}:{first[3]}"
            )


def _check_safe_ports(options: ServerOptions, services: Sequence[_Service]) -> None:
    """SageMaker calls its own port, and leaves the range to all others."""
    ports = options.sagemaker_safe_port_range
    if not options.allow_sagemaker or ports is None:
        return
    for name, is_open, address, port in services:
        is_other = name != "SageMaker" and address == options.http_address
        if is_open and is_other and not ports[0] <= port <= ports[1]:
            raise OptionError(
                f"The server cannot listen to {name} requests at port {port}, "
                f"allowed port range is [{ports[0]}, {ports[1]}]"
            )


def unused_certificates(options: ServerOptions) -> list[str]:
    """What to say where a service has files for TLS, and is served without it: Triton takes that without a word."""
    told = []
    for service in ("http", "grpc", "metrics"):
        is_used = getattr(options, f"{service}_use_ssl") or getattr(options, f"{service}_use_ssl_mutual")
        if service == "http":  # whose files those of metrics may be
            is_used = is_used or options.metrics_use_ssl or options.metrics_use_ssl_mutual
        names = [f"{service}_{name}" for name in ("server_cert", "server_key", "root_cert")]
        given = ["--" + name.replace("_", "-") for name in names if getattr(options, name)]
        if given and not is_used:
            told.append(f"{' and '.join(given)} without --{service}-use-ssl=true: {_SERVED[service]} without TLS")
    return told
