"""Vertex AI posts everything: which method a redirect is asked with is read off its path."""

from __future__ import annotations

from typing import Any

from trireme.frontends.http.frontend import all_routes
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.openapi.paths import templates
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.platforms.vertex_ai import VertexAiTranslation


def redirected(path: str) -> RequestHead:
    head = RequestHead()
    head.method, head.path = "POST", "/predict"
    head.headers = [("X-Vertex-Ai-Triton-Redirect", path.removeprefix("/"))]
    VertexAiTranslation("/predict", "/health", "m")(head)
    return head


def test_a_redirect_reaches_every_path_with_a_method_that_it_has(server: Any) -> None:
    asked = 0
    for route in all_routes(server, HttpFrontendOptions()):
        for template in templates(route.pattern.pattern):
            path = template.replace("{model}", "m").replace("{version}", "1")
            if "{" not in path:
                head = redirected(path)
                assert head.path == path
                assert head.method in route.endpoints, (head.method, path)
                asked += 1
    assert asked > 40


def test_settings_are_read_and_not_written() -> None:
    assert redirected("/v2/logging").method == "GET"
