"""Endpoints of the health API: empty answers, 200 for yes and 400 for no."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trireme.core.errors import UnavailableError
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.routing import Route, route

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


class HealthEndpoints:
    """Liveness and readiness of the server and of models."""

    def __init__(self, server: InferenceServer, background: BackgroundAnswers) -> None:
        self._server = server
        self._background = background

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route("/v2/health/live", GET=self._endpoint(self.live)),
            route("/v2/health/ready", GET=self._endpoint(self.ready)),
            route(
                "/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?/ready", GET=self._endpoint(self.model)
            ),
        ]

    def live(self, exchange: Exchange) -> None:
        """`GET /v2/health/live`."""
        self._check_exit()
        exchange.send(answers.plain(exchange.head, 200 if self._server.health.is_live() else 400))

    def ready(self, exchange: Exchange) -> None:
        """`GET /v2/health/ready`."""
        self._check_exit()
        self._background.run(exchange, self._answer_ready(exchange))

    def model(self, exchange: Exchange) -> None:
        """`GET /v2/models/<model>/ready`."""
        self._background.run(exchange, self._answer_model(exchange))

    async def _answer_ready(self, exchange: Exchange) -> None:
        is_ready = await self._server.health.is_ready()
        exchange.send(answers.plain(exchange.head, 200 if is_ready else 400))

    async def _answer_model(self, exchange: Exchange) -> None:
        head = exchange.head
        if await self._server.health.is_model_ready(head.model_name, head.model_version):
            exchange.send(answers.plain(head, 200))
        else:
            exchange.send(answers.plain_error(head, 400, "Model version not ready"))

    def _check_exit(self) -> None:
        if self._server.is_exiting:
            raise UnavailableError("Server exiting")

    def _endpoint(self, answer: object) -> Endpoint:
        return Endpoint("health", answer, is_plain=True, reads_body=False)  # type: ignore[arg-type]
