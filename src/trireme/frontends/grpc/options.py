"""What the flags say about the gRPC listener."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from trireme.frontends.pace import PaceLimits
from trireme.frontends.tls import TlsOptions
from trireme.protocol.http2.limits import Http2Limits


@dataclass(frozen=True, slots=True)
class GrpcFrontendOptions:
    """Each field names its flag; times are as the flags give them, in milliseconds."""

    address: str = "0.0.0.0"
    """`--grpc-address`."""
    port: int = 8001
    """`--grpc-port`; 0 lets the system choose."""
    reuse_port: bool = False
    """`--reuse-grpc-port`: several servers may listen on the port."""
    header_forward_pattern: str = ""
    """`--grpc-header-forward-pattern`: metadata whose key matches becomes a request parameter."""
    restricted_protocols: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """`--grpc-restricted-protocol`: protocol name to the key and value that a client has to send."""
    use_ssl: bool = False
    """`--grpc-use-ssl`."""
    use_ssl_mutual: bool = False
    """`--grpc-use-ssl-mutual`: clients need a certificate of the root."""
    server_cert: str = ""
    """`--grpc-server-cert`: path of the PEM certificate chain."""
    server_key: str = ""
    """`--grpc-server-key`: path of the PEM private key."""
    root_cert: str = ""
    """`--grpc-root-cert`: path of the PEM certificates that clients are checked against."""
    infer_response_compression_level: str = "none"
    """`--grpc-infer-response-compression-level`: none, low, medium or high."""
    keepalive_time_ms: int = 7_200_000
    """`--grpc-keepalive-time`: silence after which the server pings."""
    keepalive_timeout_ms: int = 20_000
    """`--grpc-keepalive-timeout`: how long the answer to that ping may take."""
    keepalive_permit_without_calls: bool = False
    """`--grpc-keepalive-permit-without-calls`: ping, and let clients ping, when no call is open."""
    http2_max_pings_without_data: int = 2
    """`--grpc-http2-max-pings-without-data`: pings the server sends while it has no data to send; 0 is no limit."""
    http2_min_recv_ping_interval_without_data_ms: int = 300_000
    """`--grpc-http2-min-recv-ping-interval-without-data`: pings of a client closer than this are strikes."""
    http2_max_ping_strikes: int = 2
    """`--grpc-http2-max-ping-strikes`: strikes before the connection is closed; 0 is no limit."""
    max_connection_age_ms: int | None = None
    """`--grpc-max-connection-age`."""
    max_connection_age_grace_ms: int | None = None
    """`--grpc-max-connection-age-grace`."""
    max_decompressed_bytes: int = 256 << 20
    """The largest message a compressed one may inflate to."""
    max_inflight_inflated_bytes: int = 256 << 20
    """What the unanswered requests of one connection may have inflated to before no more is read from it."""
    pace: PaceLimits = field(default_factory=PaceLimits)
    """How slow a client may be."""
    http2: Http2Limits = field(default_factory=Http2Limits)
    """Windows, sizes and budgets of a connection."""
    response_delay_s: float = field(default_factory=lambda: _number("TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC"))
    """For tests: how long a finished response of an inference is held back."""
    process_delay_s: float = field(default_factory=lambda: _number("TRITONSERVER_DELAY_GRPC_PROCESS") / 1e3)
    """For tests: how long an inference request is held back; the environment gives milliseconds."""

    @property
    def tls(self) -> TlsOptions | None:
        """The files, where gRPC is served over TLS."""
        if not (self.use_ssl or self.use_ssl_mutual):
            return None
        root = self.root_cert if self.use_ssl_mutual else ""
        return TlsOptions("gRPC", self.server_cert, self.server_key, root, ("h2",))


def _number(variable: str) -> float:
    try:
        return float(os.environ.get(variable, "0"))
    except ValueError:
        return 0.0
