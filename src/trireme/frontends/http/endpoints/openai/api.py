"""Every path of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trireme.core.close_names import closest
from trireme.core.errors import ServingError
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.embeddings import EmbeddingEndpoint
from trireme.frontends.http.endpoints.openai.endpoint import ModelCalls, error_form
from trireme.frontends.http.endpoints.openai.generation import GenerationEndpoints
from trireme.frontends.http.endpoints.openai.models import ModelEndpoints
from trireme.frontends.http.endpoints.openai.tokens import TokenEndpoints
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route
from trireme.protocol.openai.errors import UnknownPathError, WrongMethodError

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


PREFIX = "/v1/"
"""What is below it is this API's, also where nothing is."""


def openai_refusal(head: RequestHead, routes: Sequence[Route], allowed: Sequence[str]) -> Endpoint:
    """What tells a client of this API that its path does not exist, or takes the allowed methods only."""
    error: ServingError
    if allowed:
        error = WrongMethodError(head.method, head.path, " and ".join(allowed))
    else:
        paths = (route.pattern.pattern for route in routes)
        meant = closest(head.path, (path for path in paths if path.startswith(PREFIX) and "(" not in path), 0.8)
        error = UnknownPathError(head.method, head.path, meant)

    def answer(exchange: Exchange) -> None:
        exchange.send_error(error)

    return Endpoint("", answer, reads_body=False, error_form=error_form)


def openai_routes(server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> list[Route]:
    """The routes, those asked for most first."""
    calls = ModelCalls(server, options, background)
    return [
        *GenerationEndpoints(calls).routes(),
        *EmbeddingEndpoint(calls).routes(),
        *ModelEndpoints(server, background).routes(),
        *TokenEndpoints(calls).routes(),
    ]
