"""Where the server is, and how its TLS is spoken."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.options import TlsOptions


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port and the path in front of every path."""

    host: str
    port: int
    is_tls: bool = False
    base: str = ""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(url: str, default_port: int, is_tls: bool = False) -> Address:
    """`localhost:8000`, `[::1]:8000`, `https://host/base` or `grpcs://host:8001`; raises PerfError."""
    scheme, separator, rest = url.rpartition("://")
    is_tls = is_tls or scheme in ("https", "grpcs")
    if separator and scheme not in ("http", "https", "grpc", "grpcs"):
        raise PerfError(f"'{url}' is no address of a server, such as localhost:{default_port}")
    place, slash, path = rest.partition("/")
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
    default = 443 if scheme == "https" else 80 if scheme == "http" and not port else default_port
    if not host or (port and not port.isdigit()) or int(port or default) > 65535:
        raise PerfError(f"'{url}' is no address of a server, such as localhost:{default_port}")
    return Address(host, int(port or default), is_tls, f"{slash}{path}".rstrip("/"))


def resolve(address: Address, timeout_s: float = 10.0) -> tuple[int, tuple[str, int]]:
    """The family and the numbers to connect to: the first ones that answer. Raises OSError."""
    failure: OSError = OSError("no address found")
    for family, _, _, _, place in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(timeout_s)
                probe.connect(place)
                return family, (str(place[0]), int(place[1]))
        except OSError as error:
            failure = error
    raise failure


def tls_context(options: TlsOptions, protocols: list[str]) -> ssl.SSLContext:
    """What the options say; raises PerfError where a file cannot be used."""
    context = ssl.create_default_context()
    try:
        if options.ca_file is not None:
            context.load_verify_locations(options.ca_file)
        if options.certificate_file is not None:
            context.load_cert_chain(options.certificate_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        raise PerfError(f"the files for TLS cannot be used: {error}") from None
    context.check_hostname = options.verifies_host and options.verifies_peer
    if not options.verifies_peer:
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    return context
