"""Endpoints of SageMaker for several models: `/models` lists, loads and unloads what the platform has unpacked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from trireme.core.errors import AccessError, AlreadyExistsError, InvalidArgumentError, NotFoundError, ServingError
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.platforms.model_archive import read_archive
from trireme.frontends.http.platforms.sagemaker import loaded_name
from trireme.frontends.http.routing import Route, route
from trireme.frontends.http.status import is_out_of_memory, status_of
from trireme.protocol.json_codec.text import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from trireme.server.server import InferenceServer

_CATEGORY = "model-repository"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One of the platform's models."""

    target: str
    """Its name here."""
    repository: Path


class MultiModelEndpoints:
    """Knows which models the platform has loaded, by the platform's names."""

    def __init__(self, server: InferenceServer) -> None:
        self._control = server.model_control
        self._background = BackgroundAnswers()
        self._models: dict[str, _Loaded] = {}
        self._busy: set[str] = set()
        """Names whose load or unload is under way."""

    def routes(self) -> list[Route]:
        """The paths of this API; `/models/<name>/invoke` is a request for inference."""
        return [
            route("/models", GET=_endpoint(self.list), POST=_endpoint(self.load)),
            route("/models/(?P<model>[^/]+)", GET=_endpoint(self.describe), DELETE=_endpoint(self.unload)),
        ]

    def list(self, exchange: Exchange) -> None:
        """`GET /models`: those that are ready."""
        self._background.run(exchange, self._list(exchange))

    def load(self, exchange: Exchange) -> None:
        """`POST /models` with `model_name` and `url`."""
        body = parse(bytes(exchange.body)) if exchange.body else {}
        name, url = (body.get(key) if isinstance(body, dict) else None for key in ("model_name", "url"))
        if not isinstance(name, str) or not name or not isinstance(url, str):
            raise InvalidArgumentError("a load has 'model_name' and 'url', both texts")
        if name in self._models or name in self._busy:
            raise AlreadyExistsError(f"model '{name}' is loaded already")
        self._background.run(exchange, self._load(exchange, name, url))

    def describe(self, exchange: Exchange) -> None:
        """`GET /models/<name>`."""
        name = exchange.head.model_name
        exchange.send_json(orjson.dumps(_entry(name, self._find(name))))

    def unload(self, exchange: Exchange) -> None:
        """`DELETE /models/<name>`."""
        name = exchange.head.model_name
        self._background.run(exchange, self._unload(exchange, name, self._find(name)))

    def _find(self, name: str) -> _Loaded:
        found = self._models.get(name)
        if found is None or name in self._busy:
            raise NotFoundError(f"model '{name}' is not loaded")
        return found

    async def _list(self, exchange: Exchange) -> None:
        entries = []
        for name, model in list(self._models.items()):
            if await self._control.is_model_ready(model.target, ""):
                entries.append(_entry(name, model))
        exchange.send_json(orjson.dumps({"models": entries}))

    async def _load(self, exchange: Exchange, name: str, url: str) -> None:
        target = loaded_name(exchange.head, name)
        self._busy.add(name)
        try:
            archive = await asyncio.to_thread(read_archive, url)
            await self._control.load_from(archive.repository, archive.folder, target)
            self._models[name] = _Loaded(target, archive.repository)
        finally:
            self._busy.discard(name)
        exchange.send_json(b"")

    async def _unload(self, exchange: Exchange, name: str, model: _Loaded) -> None:
        self._busy.add(name)
        try:
            await self._control.unload_from(model.repository, model.target)
            del self._models[name]
        finally:
            self._busy.discard(name)
        exchange.send_json(b"")


def _endpoint(answer: Callable[[Exchange], None]) -> Endpoint:
    return Endpoint(_CATEGORY, answer, max_body_bytes=lambda head: MAX_CONTROL_BYTES, error_form=_error_form)


def _error_form(error: ServingError) -> tuple[int, bytes]:
    """The platform acts on these: 409 for a model that is there, 507 where memory does not suffice, 404."""
    status = 400
    if isinstance(error, AccessError):
        status = status_of(error)
    elif isinstance(error, AlreadyExistsError):
        status = 409
    elif isinstance(error, NotFoundError):
        status = 404
    elif is_out_of_memory(error):
        status = 507
    return status, orjson.dumps({"error": error.message})


def _entry(name: str, model: _Loaded) -> dict[str, str]:
    return {"modelName": name, "modelUrl": str(model.repository)}
