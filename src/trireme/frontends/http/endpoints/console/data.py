"""What the page asks for: the event stream, models, requests, log lines and the server, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from trireme.console.console import Console
from trireme.console.json_text import encode
from trireme.core.errors import AccessError, InvalidArgumentError
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.routing import Route, route
from trireme.protocol.http1.chunks import LAST_CHUNK, frame_pieces
from trireme.protocol.http1.sse import event_pieces

_API: Final = "/console/api"
_MODEL: Final = _API + "/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"
_NOT_BEHIND_OTHERS: Final = (
    "the event stream is not sent behind answers that are still to come: wait for them, or take another connection"
)
_NO_STORE: Final = b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"


class DataEndpoints:
    """Read-only. What the page changes, it changes through the protocol's own endpoints."""

    def __init__(self, console: Console, checks: Sequence[Callable[[Exchange], None]]) -> None:
        self._console = console
        self._checks = checks
        self._background = BackgroundAnswers()

    def routes(self) -> list[Route]:
        """The paths of the page's data, each in the group that guards the like of it elsewhere."""
        return [
            self._route(_API + "/events", "statistics", self.events),
            self._route(_MODEL, "statistics", self.model),
            self._route(_MODEL + "/config", "model-config", self.config),
            self._route(_API + "/requests(?:/(?P<model>[^/]+))?", "statistics", self.requests),
            self._route(_API + "/contents/(?P<number>[0-9]{1,15})", "recording", self.content),
            self._route(_API + "/log(?:/(?P<model>[^/]+))?(?:/after/(?P<after>[0-9]{1,15}))?", "logging", self.log),
            self._route(_API + "/server", "statistics", self.server),
        ]

    def events(self, exchange: Exchange) -> None:
        """`GET /console/api/events`."""
        if not exchange.connection.is_next(exchange):
            raise InvalidArgumentError(_NOT_BEHIND_OTHERS)
        self._console.watch(_EventStream(exchange))

    def model(self, exchange: Exchange) -> None:
        """`GET /console/api/models/<model>`."""
        self._background.run(exchange, self._answer_model(exchange))

    def config(self, exchange: Exchange) -> None:
        """`GET /console/api/models/<model>/config`."""
        self._background.run(exchange, self._answer_config(exchange))

    def requests(self, exchange: Exchange) -> None:
        """`GET /console/api/requests` and `GET /console/api/requests/<model>`."""
        _send(exchange, self._console.requests(exchange.head.model_name))

    def content(self, exchange: Exchange) -> None:
        """`GET /console/api/contents/<number>`: for those alone who might record."""
        _send(exchange, self._console.content(int(exchange.head.names[0])))

    def log(self, exchange: Exchange) -> None:
        """`GET /console/api/log` and `GET /console/api/log/<model>`."""
        head = exchange.head
        _send(exchange, self._console.log_lines(head.model_name, int(head.names[0] or 0)))

    def server(self, exchange: Exchange) -> None:
        """`GET /console/api/server`."""
        _send(exchange, self._console.overview())

    async def _answer_model(self, exchange: Exchange) -> None:
        head = exchange.head
        _send(exchange, await self._console.model(head.model_name, head.model_version))

    async def _answer_config(self, exchange: Exchange) -> None:
        head = exchange.head
        _send(exchange, await self._console.config(head.model_name, head.model_version))

    def _route(self, pattern: str, category: str, answer: Callable[[Exchange], None]) -> Route:
        checked = partial(_checked, self._checks, answer) if self._checks else answer
        return route(pattern, GET=Endpoint(category, checked, reads_body=False))


def _checked(
    checks: Sequence[Callable[[Exchange], None]], answer: Callable[[Exchange], None], exchange: Exchange
) -> None:
    for check in checks:
        check(exchange)
    answer(exchange)


def _send(exchange: Exchange, value: Any) -> None:
    exchange.send(answers.typed(exchange.head, 200, encode(value), extra=_NO_STORE))


class _EventStream:
    """A browser that watches: it is sent an event a second until it leaves, or its key does not open this any more."""

    __slots__ = ("_exchange", "_is_begun")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._is_begun = False

    @property
    def is_there(self) -> bool:
        return not self._exchange.is_abandoned

    def send(self, data: bytes) -> bool:
        if not self.is_there:
            return False
        if self._is_begun and not self._is_still_let_in():
            self.end()
            return False
        exchange = self._exchange
        pieces = event_pieces(data)
        if exchange.head.takes_chunks:
            pieces = frame_pieces(pieces)
        if not self._is_begun:
            self._is_begun = True
            pieces.insert(0, answers.stream_head(exchange.head, 200, answers.EVENT_STREAM, _NO_STORE))
            exchange.connection.close_after(exchange)  # it has no end: what is sent behind it is not read
        exchange.write(b"".join(pieces))  # all of the table is long, and copied once
        return True

    def _is_still_let_in(self) -> bool:
        """The stream has no end, and keys are removed meanwhile."""
        exchange = self._exchange
        endpoint = exchange.head.endpoint
        if endpoint is None or endpoint.admit is None:
            return True
        try:
            endpoint.admit(exchange.head, exchange.connection.peer)
        except AccessError:
            return False
        return True

    def end(self) -> None:
        self._exchange.send(LAST_CHUNK if self._exchange.head.takes_chunks else b"")
