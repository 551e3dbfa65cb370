"""Where a server is, what every request to it carries, and the client for it."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trireme.tools.client.errors import InputError
from trireme.tools.client.port import ServerClient
from trireme.tools.perf.address import Address, parse_address, tls_context
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.options import TlsOptions

if TYPE_CHECKING:
    from trireme.tools.client.http_client import HttpClient

HTTP_PORT, GRPC_PORT = 8000, 8001
KEY_VARIABLE = "TRIREME_API_KEY"
"""The environment's key for a server that asks for one."""
TLS_SCHEMES = ("https://", "grpcs://")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What the command line says about the server."""

    url: str | None = None
    is_grpc: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 300.0
    """For each wait: a stream may go on for longer."""
    ca_file: str | None = None
    is_unverified: bool = False


def connect(options: ConnectionOptions) -> ServerClient:
    """Nothing is asked yet; raises InputError for what is no address."""
    if not options.is_grpc:
        return connect_http(options, has_grpc=True)
    from trireme.tools.client.grpc_client import GrpcClient  # not needed by who speaks the other protocol

    address, context = place_of(options)
    return GrpcClient(address, options.headers, context, options.timeout_s)


def connect_http(options: ConnectionOptions, *, has_grpc: bool = False) -> HttpClient:
    """The same for what only HTTP has, unless said otherwise."""
    from trireme.tools.client.http_client import HttpClient

    address, context = place_of(options)
    return HttpClient(address, options.headers, context, options.timeout_s, has_grpc=has_grpc)


def place_of(options: ConnectionOptions) -> tuple[Address, ssl.SSLContext | None]:
    """Where the server is, and how its TLS is spoken; raises InputError, for headers that cannot be sent, too."""
    for name, value in options.headers:
        if not _HEADER_NAME.fullmatch(name):
            raise InputError(f"the name of the header {name!a} has characters that no header may have")
        if not _HEADER_VALUE.fullmatch(value):  # not shown: it may be a key
            raise InputError(f"the value of the header '{name}' has characters that no header may have")
    port = GRPC_PORT if options.is_grpc else HTTP_PORT
    url = options.url or f"localhost:{port}"
    try:
        address = parse_address(url, port, url.startswith(TLS_SCHEMES))
        tls = TlsOptions(True, options.ca_file, verifies_peer=not options.is_unverified)
        context = tls_context(tls, ["h2" if options.is_grpc else "http/1.1"]) if address.is_tls else None
    except PerfError as error:
        raise InputError(str(error)) from None
    return address, context
