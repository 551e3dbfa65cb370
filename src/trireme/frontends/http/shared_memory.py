"""Endpoints of the shared memory APIs of a server that does not allow clients' shared memory."""

from __future__ import annotations

from trireme.core.errors import NotFoundError, UnsupportedError
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.routing import Route, route

_CATEGORY = "shared-memory"
_PREFIX = "/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?/"


def shared_memory_routes() -> list[Route]:
    """The paths of both APIs."""
    return [
        route(_PREFIX + "status", GET=Endpoint(_CATEGORY, status, reads_body=False)),
        route(_PREFIX + "(?:un)?register", POST=Endpoint(_CATEGORY, change, reads_body=False)),
    ]


def status(exchange: Exchange) -> None:
    """`GET .../status`: no region is ever registered."""
    kind, region = exchange.head.names
    if region:
        raise NotFoundError(f"Unable to find {kind} shared memory region: '{region}'")
    exchange.send_json(b"[]")


def change(exchange: Exchange) -> None:
    """`POST .../register` and `.../unregister`."""
    raise UnsupportedError(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    )
