"""A chat with what is no server for it."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from meanwhile import serving

from trireme.cli.terminal_chat.client import ChatClient, ChatError


class _Odd(BaseHTTPRequestHandler):
    """Answers everything with the same words, which are no chat."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: ["odd"]\n\n')

    do_POST = do_GET

    def log_message(self, format: str, *words: object) -> None:
        """Says nothing."""


class _Endless(_Odd):
    """Says of its answer that it has less than nothing, and does not end."""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "-1")
        self.end_headers()
        self.rfile.read()

    do_POST = do_GET
    status = 200


class _EndlessError(_Endless):
    status = 500


@pytest.fixture
def odd_url() -> Iterator[str]:
    with serving(HTTPServer(("127.0.0.1", 0), _Odd)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("url", ["http://localhost:port", "ftp://localhost", "http://"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(ChatError, match="is no address of a server"):
        ChatClient(url)


def test_a_server_that_has_no_chat_is_told(odd_url: str) -> None:
    with pytest.raises(ChatError, match="has no chat API"):
        ChatClient(odd_url).models()
    with pytest.raises(ChatError, match="is no chat"):
        list(ChatClient(odd_url).stream("m", [], {}))


@pytest.mark.parametrize("kind", [_Endless, _EndlessError])
def test_an_answer_whose_length_is_none_is_not_waited_for(kind: type[_Endless]) -> None:
    words = "announces a length of '-1', which is no number of bytes"
    with serving(HTTPServer(("127.0.0.1", 0), kind)) as server, pytest.raises(ChatError, match=words):
        ChatClient(f"http://127.0.0.1:{server.server_port}").models()
