"""The console's paths: who may look, what browsers keep, and which rules the page comes with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trireme.core.errors import ForbiddenError
from trireme.frontends.http.endpoints.console.admission import check_local
from trireme.frontends.http.endpoints.console.pages import PageEndpoints
from trireme.frontends.http.head import parse_head


class Sent:
    """An exchange that keeps its answer."""

    def __init__(self, peer: str = "127.0.0.1", host: str = "localhost:8000", path: str = "/", more: str = "") -> None:
        self.head = parse_head(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
        self.head.names = (path.removeprefix("/console/static/"),)
        self.connection = SimpleNamespace(peer=peer)
        self.data = b""

    def send(self, data: bytes) -> None:
        self.data = data


def sent(**options: Any) -> Any:
    return Sent(**options)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.0.0.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000"])
def test_this_machine_may_look(peer: str, host: str) -> None:
    check_local(sent(peer=peer, host=host))


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.7", "localhost:8000"),
        ("::ffff:10.0.0.7", "localhost"),
        ("127.0.0.1", "rebound.example.com"),
        ("127.0.0.1", "localhost.example.com"),
        ("no address", "localhost"),
        ("", "localhost"),
    ],
)
def test_others_and_names_that_point_here_may_not(peer: str, host: str) -> None:
    with pytest.raises(ForbiddenError, match="--console=on"):
        check_local(sent(peer=peer, host=host))


@pytest.mark.parametrize("header", ["X-Forwarded-For: 8.8.8.8", "via: 1.1 edge", "Forwarded: for=8.8.8.8"])
def test_what_a_proxy_passes_on_is_not_from_here(header: str) -> None:
    with pytest.raises(ForbiddenError, match="--api-keys"):
        check_local(sent(more=f"{header}\r\n"))


def test_page_comes_with_strict_rules() -> None:
    exchange = sent()
    PageEndpoints(check_local).page(exchange)
    head, _, body = exchange.data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'" in head
    assert b"unsafe" not in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert b"<title>Trireme</title>" in body


def test_browser_that_has_the_file_gets_no_second_one() -> None:
    endpoints = PageEndpoints(None)
    first = sent(path="/console/static/app.js")
    endpoints.file(first)
    tag = next(line for line in first.data.split(b"\r\n") if line.startswith(b"ETag: "))[6:].decode()
    again = sent(path="/console/static/app.js", more=f"If-None-Match: {tag}\r\n")
    endpoints.file(again)
    assert again.data.startswith(b"HTTP/1.1 304 Not Modified")
    assert again.data.endswith(b"\r\n\r\n")


def test_file_is_compressed_for_those_who_take_it() -> None:
    exchange = sent(path="/console/static/console.css", more="Accept-Encoding: gzip\r\n")
    PageEndpoints(None).file(exchange)
    head, _, body = exchange.data.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert body[:2] == b"\x1f\x8b"
