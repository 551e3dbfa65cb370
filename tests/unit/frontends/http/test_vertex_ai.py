"""Vertex AI posts everything: which method a redirect is asked with is read off its path."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.frontends.http.frontend import all_routes
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.openapi.paths import templates
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.platforms.vertex_ai import VertexAiTranslation


def redirected(path: str) -> RequestHead:
    head = RequestHead()
    head.method, head.path = "POST", "/predict"
    head.headers = [("X-Vertex-Ai-Triton-Redirect", path)]
    VertexAiTranslation("/predict", "/health", "m")(head)
    return head


def test_a_redirect_reaches_every_path_with_a_method_that_it_has(server: Any) -> None:
    asked = 0
    for route in all_routes(server, HttpFrontendOptions()):
        for template in templates(route.pattern.pattern):
            path = template.replace("{model}", "m").replace("{version}", "1")
            if "{" not in path:
                for form in (path, path[1:], f"{path}/", f"{path}?a=b&c=/d", f"{path[1:]}/?", f"{path}#there"):
                    head = redirected(form)
                    assert head.path == path
                    assert head.method in route.endpoints, (head.method, form)
                asked += 1
    assert asked > 40


def test_settings_are_read_and_not_written() -> None:
    assert redirected("/v2/logging").method == "GET"


@pytest.mark.parametrize("name", ["infer", "index", "load", "generate", "register"])
def test_a_model_may_have_the_name_of_what_is_asked_of_models(name: str) -> None:
    assert redirected(f"v2/models/{name}").method == "GET"
    assert redirected(f"v2/models/{name}/versions/1").method == "GET"
    assert redirected(f"v2/models/{name}/infer").method == "POST"
