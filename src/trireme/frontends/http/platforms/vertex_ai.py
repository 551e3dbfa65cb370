"""Predictions of Google's Vertex AI: a health route and a prediction route on a port of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trireme.access.groups import METRICS
from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http import answers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.platforms.translation import header, model_path, read_binary_type
from trireme.frontends.http.routing import Route, route

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

BINARY_TYPE = "application/vnd.vertex-ai-triton.binary+json"
REDIRECT_HEADER = "x-vertex-ai-triton-redirect"
_POSTED = re.compile(
    r"/v2/(models/[^/]+(/versions/[0-9]+)?/(infer|generate|generate_stream)"
    r"|repository(/[^/]+)?/(index|models/[^/]+/(load|unload))"
    r"|(system|cuda)sharedmemory(/region/[^/]+)?/(register|unregister)"
    r"|recording/(start|fetch|stop))"
    r"|/v1/((chat/)?completions|embeddings)|/(de)?tokenize"
)
"""The paths that are asked with a body; of all others what the method GET answers is meant. Models have any names, also
those of what is asked of them."""


@dataclass(frozen=True, slots=True)
class VertexAiTranslation:
    """What the variables of the deployment say."""

    predict_route: str
    """`AIP_PREDICT_ROUTE`."""
    health_route: str
    """`AIP_HEALTH_ROUTE`."""
    model_name: str
    """`--vertex-ai-default-model`, or the only model that is loaded."""

    def __call__(self, head: RequestHead) -> None:
        """Turns the two routes into paths of the protocol, and refuses every other one."""
        read_binary_type(head, BINARY_TYPE)
        if head.path == self.health_route:
            head.path = "/v2/health/ready"
        elif head.path == self.predict_route:
            self._predict(head)
        else:
            raise InvalidArgumentError(
                f"Vertex AI's port serves {self.health_route} and {self.predict_route}, not {head.path}"
            )

    def _predict(self, head: RequestHead) -> None:
        """The default model, or what the header redirects to: Vertex AI posts everything."""
        redirect = header(head, REDIRECT_HEADER)
        if not redirect:
            head.path = model_path(self.model_name)
            return
        path = redirect.partition("?")[0].partition("#")[0]  # as of any request: nothing here reads a query
        head.path = "/" + path.strip("/")
        if head.method == "POST" and not _POSTED.fullmatch(head.path):
            head.method = "GET"


def metrics_route(server: InferenceServer) -> Route:
    """Where the header may redirect to beside the protocol: the page of the metrics port, which Vertex AI does not
    call."""

    def answer(exchange: Exchange) -> None:
        page = server.statistics.metrics_page()
        exchange.send(answers.typed(exchange.head, 200, page, answers.METRICS_TEXT))

    return route("/metrics", GET=Endpoint(METRICS, answer, is_plain=True, reads_body=False))
