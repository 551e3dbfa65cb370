"""The endpoints that say which models can be asked for texts and vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.endpoint import error_form
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.routing import Route, route
from trireme.protocol.openai.answers import encode_model
from trireme.protocol.openai.errors import UnknownModelError
from trireme.server.text_models.listing import ListedModel

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


class ModelEndpoints:
    """`GET /v1/models` and `GET /v1/models/<model>`."""

    def __init__(self, server: InferenceServer, background: BackgroundAnswers) -> None:
        self._models = server.text_models
        self._background = background

    def routes(self) -> list[Route]:
        """The paths of this API."""
        one = Endpoint("metadata", self.describe, max_body_bytes=lambda head: MAX_CONTROL_BYTES, error_form=error_form)
        every = Endpoint("metadata", self.list, max_body_bytes=lambda head: MAX_CONTROL_BYTES, error_form=error_form)
        return [route("/v1/models", GET=every), route("/v1/models/(?P<model>.+)", GET=one)]

    def list(self, exchange: Exchange) -> None:
        """Every model of this API."""
        self._background.run(exchange, self._list(exchange))

    def describe(self, exchange: Exchange) -> None:
        """One of them."""
        self._background.run(exchange, self._describe(exchange))

    async def _list(self, exchange: Exchange) -> None:
        exchange.send_json(await self._models.of_listed(_encode_list))

    async def _describe(self, exchange: Exchange) -> None:
        name = exchange.head.model_name
        found = await self._models.find(name)
        if found is None:
            raise UnknownModelError(name, await self._models.nearest(name))
        exchange.send_json(orjson.dumps(_encoded(found)))


def _encode_list(models: Iterable[ListedModel]) -> bytes:
    return orjson.dumps({"object": "list", "data": [_encoded(model) for model in models]})


def _encoded(model: ListedModel) -> dict[str, Any]:
    return encode_model(model.name, model.loaded_s, model.parent)
