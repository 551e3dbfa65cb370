"""What the flags say about the HTTP listeners, and the limits of a connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trireme.frontends.http.head import RequestHead
from trireme.frontends.pace import PaceLimits
from trireme.frontends.tls import TlsOptions

MAX_CONTROL_BYTES = 128 << 10
"""The body of a request that asks for something small: the index, an unload, settings."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one client may ask of a connection before it is refused or closed."""

    max_head_bytes: int = 64 << 10
    """Request line and headers together."""
    max_body_bytes: int = 4 << 30
    """A request's body, whatever it is for."""
    max_pipelined: int = 64
    """Requests under way on one connection; further ones wait unread."""
    pace: PaceLimits = field(default_factory=PaceLimits)
    """How slow a client may be."""
    half_closed_grace_s: float = 0.5
    """How long a client that has closed its sending side may wait for its answers before it counts as gone."""
    max_unsent_bytes: int = 64 << 20
    """Unread bytes at which the client of a stream counts as gone."""
    large_body_bytes: int = 256 << 10
    """Bodies from this size on are received straight into one buffer."""


@dataclass(frozen=True, slots=True)
class HttpFrontendOptions:
    """Each field names its flag."""

    address: str = "0.0.0.0"
    """`--http-address`."""
    port: int = 8000
    """`--http-port`; 0 lets the system choose."""
    reuse_port: bool = False
    """`--reuse-http-port`: several servers may listen on the port."""
    thread_count: int = 8
    """`--http-thread-count`: accepted; one event loop serves all connections."""
    max_input_size_bytes: int = 64 << 20
    """`--http-max-input-size`: JSON texts, inputs described in JSON, raw inputs and decompressed bodies."""
    header_forward_pattern: str = ""
    """`--http-header-forward-pattern`: headers of an inference whose name matches become request parameters."""
    restricted_apis: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """`--http-restricted-api`: API category to the header name and value that a client has to send."""
    tls: TlsOptions | None = None
    """`--http-use-ssl`, `--http-use-ssl-mutual`, `--http-server-cert`, `--http-server-key`, `--http-root-cert`."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """Sizes and times of a connection."""
    translation: Callable[[RequestHead], None] | None = None
    """Turns the requests of a cloud platform into those of the protocol; see `platforms`."""


@dataclass(frozen=True, slots=True)
class MetricsFrontendOptions:
    """Each field names its flag."""

    address: str = "0.0.0.0"
    """`--metrics-address`; the HTTP address where it is not given."""
    port: int = 8002
    """`--metrics-port`; 0 lets the system choose."""
    reuse_port: bool = False
    """Several servers may listen on the port."""
    tls: TlsOptions | None = None
    """The same flags of metrics, with the files of HTTP where metrics have none."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """Sizes and times of a connection."""
