"""The console's paths: who may look, what browsers keep, and which rules the page comes with."""

from __future__ import annotations

import gzip
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
@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000", "[::1]", "localhost:"])
def test_this_machine_may_look(peer: str, host: str) -> None:
    check_local(sent(peer=peer, host=host))


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.7", "localhost:8000"),
        ("::ffff:10.0.0.7", "localhost"),
        ("127.0.0.1", "rebound.example.com"),
        ("127.0.0.1", "localhost.example.com"),
        ("127.0.0.1", "localhost:evil.example.com"),
        ("127.0.0.1", "localhost:8000:1"),
        ("127.0.0.1", "[::1]evil.example.com"),
        ("127.0.0.1", "[::1]:8000.example.com"),
        ("127.0.0.1", "[::1"),
        ("127.0.0.1", ""),
        ("no address", "localhost"),
        ("", "localhost"),
    ],
)
def test_others_and_names_that_point_here_may_not(peer: str, host: str) -> None:
    with pytest.raises(ForbiddenError, match="--console=on"):
        check_local(sent(peer=peer, host=host))


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For: 8.8.8.8",
        "via: 1.1 edge",
        "Forwarded: for=8.8.8.8",
        "X-Real-IP: 8.8.8.8",
        "x-forwarded-host: a",
    ],
)
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


APP = "/console/static/app.js"


def answer(more: str = "") -> tuple[str, dict[str, str], bytes]:
    """Status line, headers and body of a file of the page."""
    exchange = sent(path=APP, more=more)
    PageEndpoints(None).file(exchange)
    head, _, body = exchange.data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize("coding", ["", "Accept-Encoding: gzip, deflate, br\r\n"], ids=["plain", "compressed"])
@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
def test_browser_that_has_the_file_gets_no_second_one(coding: str, form: str) -> None:
    _, headers, _ = answer(coding)
    status, again, body = answer(f"{coding}If-None-Match: {form.format(headers['ETag'])}\r\n")
    assert (status, body) == ("HTTP/1.1 304 Not Modified", b"")
    assert again["ETag"] == headers["ETag"]
    assert again["Vary"] == "Accept-Encoding"
    assert again["Cache-Control"] == "no-cache"


def test_file_is_compressed_for_those_who_take_it() -> None:
    status, headers, body = answer("Accept-Encoding: gzip, deflate, br\r\n")
    assert status == "HTTP/1.1 200 OK"
    assert headers["Content-Encoding"] == "gzip"
    assert int(headers["Content-Length"]) == len(body) < len(answer()[2])
    assert gzip.decompress(body) == answer()[2]


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "deflate"])
def test_file_comes_as_it_is_to_all_others(accepted: str) -> None:
    _, headers, body = answer(f"Accept-Encoding: {accepted}\r\n" if accepted else "")
    assert "Content-Encoding" not in headers
    assert body.startswith(b"// ")
    assert headers["Vary"] == "Accept-Encoding"


def test_the_two_forms_of_a_file_are_not_taken_for_each_other() -> None:
    compressed = answer("Accept-Encoding: gzip\r\n")[1]["ETag"]
    assert compressed != answer()[1]["ETag"]
    assert answer(f"If-None-Match: {compressed}\r\n")[0] == "HTTP/1.1 200 OK"
