"""Every path of OpenAI's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.embeddings import EmbeddingEndpoint
from trireme.frontends.http.endpoints.openai.endpoint import ModelCalls
from trireme.frontends.http.endpoints.openai.generation import GenerationEndpoints
from trireme.frontends.http.endpoints.openai.models import ModelEndpoints
from trireme.frontends.http.endpoints.openai.tokens import TokenEndpoints
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


def openai_routes(server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> list[Route]:
    """The routes, those asked for most first."""
    calls = ModelCalls(server, options, background)
    return [
        *GenerationEndpoints(calls).routes(),
        *EmbeddingEndpoint(calls).routes(),
        *ModelEndpoints(server).routes(),
        *TokenEndpoints(calls).routes(),
    ]
