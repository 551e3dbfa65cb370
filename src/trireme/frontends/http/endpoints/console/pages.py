"""The page and its files: public as the package is, under rules that let nothing but them run in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trireme.console.static_files import StaticFile, static_files
from trireme.core.errors import NotFoundError
from trireme.frontends.http import answers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.routing import Route, route

_PAGE: Final = "index.html"
_HEADERS: Final = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data: blob:; media-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Referrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\n"
    b"Cache-Control: no-cache\r\n"
    b"Vary: Accept-Encoding\r\n"
)


class PageEndpoints:
    """`/`, `/console`, and the files that they load."""

    def __init__(self, check: Callable[[Exchange], None] | None) -> None:
        self._check = check

    def routes(self) -> list[Route]:
        """The paths of the page; no key is asked for here, because a browser could not send one."""
        page = Endpoint("", self.page, reads_body=False)
        file = Endpoint("", self.file, reads_body=False)
        return [
            route("/(?:console/?)?", GET=page, HEAD=page),
            route("/console/static/(?P<file>(?:[a-z]+/)?[a-z_]+\\.[a-z]+)", GET=file, HEAD=file),
        ]

    def page(self, exchange: Exchange) -> None:
        """`GET /` and `GET /console`."""
        self._send(exchange, static_files()[_PAGE])

    def file(self, exchange: Exchange) -> None:
        """`GET /console/static/<file>`."""
        name = exchange.head.names[0]
        found = static_files().get(name)
        if found is None:
            raise NotFoundError(f"the console has no file '{name}'")
        self._send(exchange, found)

    def _send(self, exchange: Exchange, file: StaticFile) -> None:
        if self._check is not None:
            self._check(exchange)
        head = exchange.head
        is_gzip = head.accepted_coding == "gzip"
        tag = f'"{file.tag}{"-gz" if is_gzip else ""}"'
        extra = _HEADERS + f"ETag: {tag}\r\n".encode()
        known = next((value for name, value in head.headers if name.lower() == "if-none-match"), "")
        if tag in known or known.strip() == "*":
            exchange.send(answers.not_modified(head, extra))
            return
        if is_gzip:
            extra += b"Content-Encoding: gzip\r\n"
        body = file.compressed if is_gzip else file.data
        exchange.send(answers.typed(head, 200, body, file.content_type.encode(), extra))
