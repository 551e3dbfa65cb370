"""The metrics port: one page, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.frontends.http.options import MetricsFrontendOptions
from trireme.frontends.metrics import MetricsFrontend


@pytest.fixture
def metrics(server: Any, client: Any) -> Any:
    frontend = MetricsFrontend(server, MetricsFrontendOptions())
    return type(client)(frontend.listener)


def test_the_page_is_text(metrics: Any, server: Any, get: Any) -> None:
    page = server.metrics_page()
    for path in ("/metrics", "/metrics?name=x"):
        assert metrics.ask(get(path)) == (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
            % (len(page), page)
        )


def test_other_paths_are_empty(metrics: Any, get: Any) -> None:
    assert metrics.ask(get("/v2/health/live")) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\n\r\n"
    )


def test_other_methods_are_not_allowed(metrics: Any, post: Any) -> None:
    assert metrics.ask(post("/metrics", b"")) == (
        b"HTTP/1.1 405 Not Allowed\r\nContent-Length: 30\r\nContent-Type: text/plain\r\n\r\n"
        b'{"error":"Method Not Allowed"}'
    )
