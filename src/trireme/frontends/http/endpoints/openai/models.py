"""The endpoints that say which models can be asked for texts and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trireme.frontends.http.endpoints.openai.endpoint import error_form
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.routing import Route, route
from trireme.protocol.openai.answers import encode_model
from trireme.protocol.openai.errors import UnknownModelError

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


class ModelEndpoints:
    """`GET /v1/models` and `GET /v1/models/<model>`."""

    def __init__(self, server: InferenceServer) -> None:
        self._models = server.text_models

    def routes(self) -> list[Route]:
        """The paths of this API."""
        one = Endpoint("metadata", self.describe, max_body_bytes=lambda head: MAX_CONTROL_BYTES, error_form=error_form)
        every = Endpoint("metadata", self.list, max_body_bytes=lambda head: MAX_CONTROL_BYTES, error_form=error_form)
        return [route("/v1/models", GET=every), route("/v1/models/(?P<model>.+)", GET=one)]

    def list(self, exchange: Exchange) -> None:
        """Every model of this API."""
        models = [encode_model(model.name, model.loaded_s, model.parent) for model in self._models.listed()]
        exchange.send_json(orjson.dumps({"object": "list", "data": models}))

    def describe(self, exchange: Exchange) -> None:
        """One of them."""
        name = exchange.head.model_name
        found = self._models.find(name)
        if found is None:
            raise UnknownModelError(name, self._models.nearest(name))
        exchange.send_json(orjson.dumps(encode_model(found.name, found.loaded_s, found.parent)))
