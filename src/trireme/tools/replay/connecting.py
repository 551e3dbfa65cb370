"""Which server a call is sent to: the one, or of a pair of addresses that of the protocol it was recorded with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trireme.tools.client.connect import ConnectionOptions, place_of
from trireme.tools.replay.kept_clients import KeptClient, KeptGrpcClient, KeptHttpClient


def client_maker(options: ConnectionOptions, grpc_url: str | None) -> Callable[[str], KeptClient]:
    """Makes clients; with `grpc_url` calls that came over gRPC go there, and the others to the HTTP port. Raises
    InputError for what is no address. Where all go over gRPC, they go there as well."""
    if options.is_grpc and grpc_url is not None:
        options, grpc_url = replace(options, url=grpc_url), None
    usual = _maker(options)
    if grpc_url is None:
        return lambda protocol: usual()
    other = _maker(replace(options, url=grpc_url, is_grpc=True))
    return lambda protocol: other() if protocol == "grpc" else usual()


def _maker(options: ConnectionOptions) -> Callable[[], KeptClient]:
    address, context = place_of(options)
    if options.is_grpc:
        return lambda: KeptGrpcClient(address, options.headers, context, options.timeout_s)
    return lambda: KeptHttpClient(address, options.headers, context, options.timeout_s)
