"""Endpoints of the trace and logging APIs: both methods answer with the settings in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.routing import Route, route
from trireme.protocol.json_codec.text import parse

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


class SettingsEndpoints:
    """The values are checked by the server's settings."""

    def __init__(self, server: InferenceServer) -> None:
        self._settings = server.settings

    def routes(self) -> list[Route]:
        """The paths of these APIs."""
        trace = {"GET": _reading("trace", self.trace), "POST": _writing("trace", self.update_trace)}
        return [
            route("/v2/trace/setting", **trace),
            route("/v2/models/(?P<model>[^/]+)/trace/setting", **trace),
            route("/v2/logging", GET=_reading("logging", self.log), POST=_writing("logging", self.update_log)),
        ]

    def trace(self, exchange: Exchange) -> None:
        """`GET /v2[/models/<model>]/trace/setting`."""
        _send(exchange, self._settings.trace_settings(exchange.head.model_name))

    def update_trace(self, exchange: Exchange) -> None:
        """`POST /v2[/models/<model>]/trace/setting`."""
        self._settings.trace_settings(exchange.head.model_name)  # an unknown model is told before a malformed body
        _send(exchange, self._settings.update_trace_settings(exchange.head.model_name, _changes(exchange)))

    def log(self, exchange: Exchange) -> None:
        """`GET /v2/logging`."""
        _send(exchange, self._settings.log_settings())

    def update_log(self, exchange: Exchange) -> None:
        """`POST /v2/logging`."""
        _send(exchange, self._settings.update_log_settings(_changes(exchange)))


def _reading(category: str, answer: Callable[[Exchange], None]) -> Endpoint:
    return Endpoint(category, answer, reads_body=False)


def _writing(category: str, answer: Callable[[Exchange], None]) -> Endpoint:
    return Endpoint(category, answer, max_body_bytes=lambda head: MAX_CONTROL_BYTES)


def _changes(exchange: Exchange) -> dict[str, Any]:
    changes = parse(bytes(exchange.body))
    return changes if isinstance(changes, dict) else {}


def _send(exchange: Exchange, settings: Mapping[str, Any]) -> None:
    exchange.send_json(orjson.dumps(dict(settings)))
