"""`GET /openapi.json`."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from trireme import __version__
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.openapi.document import describe
from trireme.frontends.http.routing import Route, route


def openapi_route(routes: Sequence[Route]) -> Route:
    """The route that describes these; the document is written when it is first asked for."""
    written: list[bytes] = []

    def answer(exchange: Exchange) -> None:
        if not written:
            written.append(orjson.dumps(describe(routes, __version__)))
        exchange.send_json(written[0])

    return route("/openapi\\.json", GET=Endpoint("metadata", answer, reads_body=False))
