"""Endpoints of the model repository API: the index, load and unload."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, UnsupportedError
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.routing import Route, route
from trireme.protocol.json_codec.access import members_of, string_of
from trireme.protocol.json_codec.text import QUICK_BYTES, parse

if TYPE_CHECKING:
    from trireme.server.model_control import IndexEntry
    from trireme.server.server import InferenceServer

_BASE64_PIECE = 4 << 20  # a multiple of 4 characters
_CATEGORY = "model-repository"
_CONTROL = "/v2/repository(?:/(?P<repository>[^/]+))?/models/(?P<model>[^/]+)/"


class RepositoryEndpoints:
    """Model control over HTTP; the server itself says whether it is allowed."""

    def __init__(self, server: InferenceServer, background: BackgroundAnswers) -> None:
        self._control = server.model_control
        self._background = background

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route("/v2/repository(?:/[^/]+)?/index", POST=_short(self.index)),
            route(_CONTROL + "load", POST=Endpoint(_CATEGORY, self.load)),
            route(_CONTROL + "unload", POST=_short(self.unload)),
        ]

    def index(self, exchange: Exchange) -> None:
        """`POST /v2/repository/index`."""
        request = parse(bytes(exchange.body)) if exchange.body else {}
        ready_only = request.get("ready", False) if isinstance(request, dict) else False
        if not isinstance(ready_only, bool):
            raise InvalidArgumentError("Invalid value for 'ready': expected a boolean")
        self._background.run(exchange, self._index(exchange, ready_only))

    def load(self, exchange: Exchange) -> None:
        """`POST /v2/repository/models/<model>/load`."""
        _refuse_repository_name(exchange)
        if len(exchange.body) > QUICK_BYTES:
            work = self._background.ordered_work(exchange)
            work.compute(partial(_read_load, exchange.body), partial(self._begin_load, exchange))
        else:
            self._begin_load(exchange, _read_load(exchange.body))

    def unload(self, exchange: Exchange) -> None:
        """`POST /v2/repository/models/<model>/unload`."""
        _refuse_repository_name(exchange)
        unload_dependents = _parameters(exchange.body).get("unload_dependents") is True
        self._background.run(exchange, self._unload(exchange, unload_dependents))

    def _begin_load(self, exchange: Exchange, parameters: tuple[str | None, dict[str, bytes]]) -> None:
        exchange.body = b""
        self._background.run(exchange, self._load(exchange, *parameters))

    async def _index(self, exchange: Exchange, ready_only: bool) -> None:
        entries = await self._control.index(ready_only)
        exchange.send_json(orjson.dumps([_entry(entry) for entry in entries]))

    async def _load(self, exchange: Exchange, config: str | None, files: dict[str, bytes]) -> None:
        await self._control.load(exchange.head.model_name, config, files)
        exchange.send_json(b"")

    async def _unload(self, exchange: Exchange, unload_dependents: bool) -> None:
        await self._control.unload(exchange.head.model_name, unload_dependents)
        exchange.send_json(b"")


def _short(answer: Callable[[Exchange], None]) -> Endpoint:
    return Endpoint(_CATEGORY, answer, max_body_bytes=lambda head: MAX_CONTROL_BYTES)


def _read_load(body: Buffer) -> tuple[str | None, dict[str, bytes]]:
    """The configuration and the files that a load brings along."""
    config: str | None = None
    files: dict[str, bytes] = {}
    for name, value in _parameters(body).items():
        if name == "config":
            config = string_of(value)
        elif name.startswith("file:"):
            files[name] = _decode_file(name, string_of(value))
        else:
            raise InternalError("unexpected error on creating Triton parameter")
    return config, files


def _refuse_repository_name(exchange: Exchange) -> None:
    if exchange.head.names[0]:
        raise UnsupportedError("'repository_name' specification is not supported")


def _parameters(body: Buffer) -> dict[str, Any]:
    """The request's parameters; a body is optional, and so are they."""
    root = parse(bytes(body)) if body else {}
    if not isinstance(root, dict) or "parameters" not in root:
        return {}
    return members_of(root["parameters"])


def _decode_file(name: str, content: str) -> bytes:
    try:
        pieces = range(0, len(content), _BASE64_PIECE)  # each keeps other threads waiting only for a moment
        return b"".join([base64.b64decode(content[start : start + _BASE64_PIECE]) for start in pieces])
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(f"load parameter '{name}' is not in base64") from None


def _entry(entry: IndexEntry) -> dict[str, str]:
    fields = {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
    return {field: value for field, value in fields.items() if value or field == "name"}
