"""Options about the front ends: HTTP, gRPC, and the two cloud platforms' own endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trireme.config.options.option import option
from trireme.config.options.setting_values import RESTRICTED_API, RESTRICTED_PROTOCOL, RestrictedApi
from trireme.config.options.values import (
    BOOLEAN,
    COUNT,
    INT32_MAX,
    INTEGER,
    PATTERN,
    PORT,
    PORT_RANGE,
    POSITIVE,
    REQUIRED_TEXT,
    TEXT,
    choice,
    integer,
)

_ONE_LOOP = "one event loop serves all connections; there is no pool of threads to size"


@dataclass(frozen=True)
class HttpOptions:
    """The HTTP endpoint."""

    TITLE: ClassVar[str] = "HTTP"

    allow_http: bool = option(True, BOOLEAN, "Whether HTTP is served.")
    http_address: str = option("0.0.0.0", REQUIRED_TEXT, "The address HTTP listens on.")
    http_port: int = option(8000, PORT, "The port HTTP listens on.")
    reuse_http_port: bool = option(False, BOOLEAN, "Share the HTTP port with other processes (SO_REUSEPORT).")
    http_header_forward_pattern: str = option(
        "", PATTERN, "Headers whose name this regular expression finds become request parameters."
    )
    http_thread_count: int = option(8, POSITIVE, "Threads that serve HTTP.", ignored=_ONE_LOOP)
    http_max_input_size: int = option(
        64 * 1024 * 1024, POSITIVE, "The largest request body in bytes; a larger one is refused."
    )
    http_restricted_api: Mapping[str, RestrictedApi] = option(
        {},
        RESTRICTED_API,
        "Lock parts of the API behind a header: <api>[,<api>...]:<header>=<value>. The parts are health, metadata, "
        "inference, shared-memory, model-config, model-repository, statistics, trace and logging.",
    )
    console: str = option(
        "auto",
        choice("auto", "on", "off"),
        "The page at / that shows what the server is doing: auto shows it to whoever has an API key or, without "
        "--api-keys, on this machine alone; on shows it to everybody who reaches the port; off removes it.",
        is_extension=True,
    )
    http_use_ssl: bool = option(False, BOOLEAN, "Whether HTTP is served over TLS.", is_extension=True)
    http_use_ssl_mutual: bool = option(
        False, BOOLEAN, "Whether clients of HTTP must show a certificate.", is_extension=True
    )
    http_server_cert: str = option("", TEXT, "The server's certificate, a PEM file.", is_extension=True)
    http_server_key: str = option("", TEXT, "The server's private key, a PEM file.", is_extension=True)
    http_root_cert: str = option("", TEXT, "The root certificates of clients, a PEM file.", is_extension=True)


@dataclass(frozen=True)
class GrpcOptions:
    """The gRPC endpoint."""

    TITLE: ClassVar[str] = "GRPC"

    allow_grpc: bool = option(True, BOOLEAN, "Whether gRPC is served.")
    grpc_address: str = option("0.0.0.0", REQUIRED_TEXT, "The address gRPC listens on.")
    grpc_port: int = option(8001, PORT, "The port gRPC listens on.")
    reuse_grpc_port: bool = option(False, BOOLEAN, "Share the gRPC port with other processes (SO_REUSEPORT).")
    grpc_header_forward_pattern: str = option(
        "", PATTERN, "Metadata whose key this regular expression finds becomes request parameters."
    )
    grpc_infer_thread_count: int = option(2, integer(2, 128), "Threads that serve inference.", ignored=_ONE_LOOP)
    grpc_infer_allocation_pool_size: int = option(
        8, COUNT, "Requests and responses kept for reuse.", ignored="there is no such pool to size"
    )
    grpc_max_response_pool_size: int = option(
        INT32_MAX, POSITIVE, "Responses of a stream kept for reuse.", ignored="there is no such pool to size"
    )
    grpc_use_ssl: bool = option(False, BOOLEAN, "Whether gRPC is served over TLS.")
    grpc_use_ssl_mutual: bool = option(False, BOOLEAN, "Whether clients must show a certificate.")
    grpc_server_cert: str = option("", TEXT, "The server's certificate, a PEM file.")
    grpc_server_key: str = option("", TEXT, "The server's private key, a PEM file.")
    grpc_root_cert: str = option("", TEXT, "The root certificates of clients, a PEM file.")
    grpc_infer_response_compression_level: str = option(
        "none",
        choice("none", "low", "medium", "high"),
        "How hard inference responses are compressed, for clients that accept it.",
    )
    grpc_keepalive_time: int = option(7200000, INTEGER, "Milliseconds of silence after which the server sends a ping.")
    grpc_keepalive_timeout: int = option(20000, INTEGER, "Milliseconds a ping may stay unanswered.")
    grpc_keepalive_permit_without_calls: bool = option(False, BOOLEAN, "Whether pings are sent while no call is open.")
    grpc_http2_max_pings_without_data: int = option(2, INTEGER, "Pings the server sends without data; 0 is no limit.")
    grpc_http2_min_recv_ping_interval_without_data: int = option(
        300000, INTEGER, "Milliseconds a client must let pass between pings without data."
    )
    grpc_http2_max_ping_strikes: int = option(2, INTEGER, "Early pings forgiven before the connection is closed.")
    grpc_max_connection_age: int | None = option(
        None, INTEGER, "Milliseconds after which a connection is asked to go away."
    )
    grpc_max_connection_age_grace: int | None = option(
        None, INTEGER, "Milliseconds that calls of such a connection still get."
    )
    grpc_restricted_protocol: Mapping[str, RestrictedApi] = option(
        {},
        RESTRICTED_PROTOCOL,
        "Lock parts of the API behind metadata: <api>[,<api>...]:<key>=<value>; the metadata key is "
        "triton-grpc-protocol-<key>.",
    )


@dataclass(frozen=True)
class SagemakerOptions:
    """The endpoint that SageMaker calls."""

    TITLE: ClassVar[str] = "Sagemaker"

    allow_sagemaker: bool = option(False, BOOLEAN, "Whether the SageMaker endpoint is served.")
    sagemaker_port: int = option(8080, PORT, "Its port.")
    sagemaker_safe_port_range: tuple[int, int] | None = option(
        None,
        PORT_RANGE,
        "The ports that SageMaker leaves to the container: those of HTTP, gRPC and metrics must be among them.",
    )
    sagemaker_thread_count: int = option(8, POSITIVE, "Its threads.", ignored=_ONE_LOOP)


@dataclass(frozen=True)
class VertexOptions:
    """The endpoint that Vertex AI calls."""

    TITLE: ClassVar[str] = "Vertex"

    allow_vertex_ai: bool = option(
        False,
        BOOLEAN,
        "Whether the Vertex AI endpoint is served; with AIP_MODE=PREDICTION it is, and HTTP and gRPC are not.",
    )
    vertex_ai_port: int = option(8080, PORT, "Its port; AIP_HTTP_PORT where it is not given.")
    vertex_ai_thread_count: int = option(8, POSITIVE, "Its threads.", ignored=_ONE_LOOP)
    vertex_ai_default_model: str = option("", TEXT, "The model that plain predictions go to; else the only one.")
