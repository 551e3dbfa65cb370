"""All paths of the console."""

from __future__ import annotations

from trireme.console.console import Console
from trireme.frontends.http.endpoints.console.admission import check_local, check_own_page
from trireme.frontends.http.endpoints.console.data import DataEndpoints
from trireme.frontends.http.endpoints.console.pages import PageEndpoints
from trireme.frontends.http.routing import Route


def console_routes(console: Console, is_for_everybody: bool, has_keys: bool) -> list[Route]:
    """The page and its data; for clients on this machine alone unless it is for everybody, that is for those whom the
    gate lets in. Without keys the data is for the server's own page alone, which others may lead to."""
    check = None if is_for_everybody else check_local
    data_checks = [check_local] if check is not None else []
    if not has_keys:
        data_checks.append(check_own_page)
    return [*PageEndpoints(check).routes(), *DataEndpoints(console, data_checks).routes()]
