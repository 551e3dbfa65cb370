"""Opens the questions for the protocol of a run."""

from __future__ import annotations

import contextlib

from trireme.tools.perf.address import Address, parse_address, tls_context
from trireme.tools.perf.control.grpc_calls import GrpcServerCalls
from trireme.tools.perf.control.http_calls import HttpServerCalls
from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.options import PerfOptions


def server_address(options: PerfOptions) -> Address:
    """Where the load goes."""
    return parse_address(options.url, 8001 if options.protocol == "grpc" else 8000, options.tls.is_on)


def connect(options: PerfOptions) -> ServerCalls:
    """Nothing is asked yet."""
    address = server_address(options)
    context = tls_context(options.tls, ["h2" if options.protocol == "grpc" else "http/1.1"]) if address.is_tls else None
    if options.protocol == "grpc":
        return GrpcServerCalls(address, options.headers, context)
    return HttpServerCalls(address, options.headers, context)


def probe(options: PerfOptions, path: str) -> None:
    """Asks a server over HTTP for this, and takes any answer; raises PerfError where none comes."""
    address = server_address(options)
    context = tls_context(options.tls, ["http/1.1"]) if address.is_tls else None
    with contextlib.closing(HttpServerCalls(address, options.headers, context)) as calls:
        calls.probe(path)
