"""Whose metrics are read: those of the server that is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from meanwhile import serving

from trireme.tools.analyze.options import ServerPlace
from trireme.tools.analyze.server import target as targets
from trireme.tools.analyze.server.metrics_page import resource_watch
from trireme.tools.analyze.server.process import listening_ports
from trireme.tools.analyze.server.target import Target, open_target

PAGE = 'nv_inference_count{model="%s",version="1"} 7\nnv_cpu_utilization 0.5\nnv_cpu_memory_used_bytes 9e15\n'


@contextmanager
def page_of(model: str) -> Iterator[int]:
    """The port of a page that names this model."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((PAGE % model).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Page)) as server:
        yield server.server_port


class Index:
    """A client of a server that has one model."""

    def index(self) -> list[dict[str, str]]:
        return [{"name": "mine"}]


class Remote:
    """What the target reads of the options of an analysis."""

    def __init__(self, metrics_url: str | None) -> None:
        self.place = ServerPlace("remote", http_url="127.0.0.1:1", metrics_url=metrics_url, protocol="http")


@contextmanager
def server_at(port: int, process_id: int | None, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Iterator[Target]:
    """A server whose page is where servers have theirs, or at the address that is given."""
    monkeypatch.setattr(targets, "_METRICS_PORT", port)
    monkeypatch.setattr(targets, "server_process", lambda host, port: process_id)
    with open_target(Remote(given.get("metrics_url")), nullcontext) as target:  # type: ignore[arg-type]
        yield replace(target, client=Index())  # type: ignore[arg-type]


def test_a_page_that_names_models_of_another_server_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with page_of("another") as port, server_at(port, None, monkeypatch) as target:
        assert resource_watch(target, 60.0, told.append) == (None, None)
    assert told == [
        f"the metrics at 127.0.0.1:{port}/metrics are another server's, which has the model 'another' "
        "(--triton-metrics-url says where this one's are): memory and utilisation are not measured"
    ]


@pytest.mark.parametrize("is_given", [True, False])
def test_the_page_of_the_server_or_one_that_is_given_is_read(monkeypatch: pytest.MonkeyPatch, is_given: bool) -> None:
    told: list[str] = []
    with page_of("another" if is_given else "mine") as port:
        given = {"metrics_url": f"127.0.0.1:{port}/metrics"} if is_given else {}
        with server_at(1 if is_given else port, None, monkeypatch, **given) as target:
            watch, _ = resource_watch(target, 60.0, told.append)
            assert watch is not None
            watch.start()
            assert watch.stop().machine["cpu_utilization"] == 50.0
    assert told == []


def test_the_page_is_found_among_the_ports_of_the_servers_process(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with page_of("another") as strange, page_of("mine") as own, server_at(strange, os.getpid(), monkeypatch) as target:
        assert {strange, own} <= set(listening_ports(os.getpid()))
        watch, process_id = resource_watch(target, 60.0, told.append)
        assert (watch is not None, process_id) == (True, os.getpid())
        assert watch is not None
        assert watch.models() == {"mine"}
    assert told == []


def test_memory_is_seen_without_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(targets, "listening_ports", lambda process_id: [])
    with page_of("mine") as port, server_at(port, os.getpid(), monkeypatch) as target:  # another server's
        watch, _ = resource_watch(target, 60.0, told.append)
        assert watch is not None
        watch.start()
        assert list(watch.stop().machine) == ["cpu_used_ram"]
    assert told == ["the server listens at no port for metrics: utilisation is not measured"]
