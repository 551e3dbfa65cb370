"""All paths of the console."""

from __future__ import annotations

from trireme.console.console import Console
from trireme.frontends.http.endpoints.console.admission import check_local
from trireme.frontends.http.endpoints.console.data import DataEndpoints
from trireme.frontends.http.endpoints.console.pages import PageEndpoints
from trireme.frontends.http.routing import Route


def console_routes(console: Console, is_for_everybody: bool) -> list[Route]:
    """The page and its data; for clients on this machine alone unless it is for everybody, that is for those whom the
    gate lets in."""
    check = None if is_for_everybody else check_local
    return [*PageEndpoints(check).routes(), *DataEndpoints(console, check).routes()]
