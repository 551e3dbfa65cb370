"""The console's event stream on a connection: what may be sent before it and behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.access.api_key import ApiKey
from trireme.access.gate import Gate
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_ring import KeyRing
from trireme.access.key_secret import digest_of
from trireme.core.errors import UnavailableError
from trireme.core.response import InferenceResponse
from trireme.frontends.connection_slots import ConnectionPlace
from trireme.frontends.http.connection import Connection
from trireme.frontends.http.endpoints.console.routes import console_routes
from trireme.frontends.http.frontend import create_listener
from trireme.frontends.http.options import HttpFrontendOptions

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
EVENTS = b"GET /console/api/events HTTP/1.1\r\nHost: x\r\n\r\n"
INFER = "/v2/models/quiet/infer"
ONE_NUMBER = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1.5]}]}'
TEXT = b'data: {"n":1}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(TEXT), TEXT)


@pytest.fixture
def watchers() -> list[Any]:
    return []


@pytest.fixture
def browser(server: Any, client: Any, watchers: list[Any]) -> Any:
    """A connection to a server with a console, which has one event for everybody who comes."""

    def watch(watcher: Any) -> None:
        watchers.append(watcher)
        watcher.send(b'{"n":1}')

    return reaching(client, server, watch)


def reaching(client: Any, server: Any, watch: Callable[[Any], None], keys: KeyRing | None = None) -> Any:
    """The client on a connection to a server whose console does that with those who come."""
    console: Any = SimpleNamespace(watch=watch)
    routes = console_routes(console, True, keys is not None)
    listener = create_listener(server, HttpFrontendOptions(), Gate(keys), more_routes=routes)
    client.connection = Connection(listener, ConnectionPlace(listener.slots))
    client.transport.protocol = client.connection
    client.connection.connection_made(client.transport)
    return client


def test_stream_begins_with_its_head_and_goes_on(browser: Any, watchers: list[Any]) -> None:
    head, _, body = browser.ask(EVENTS).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/event-stream" in head
    assert body == CHUNK
    assert watchers[0].send(b'{"n":1}')
    assert browser.take() == CHUNK
    watchers[0].end()
    assert browser.take() == b"0\r\n\r\n"
    assert browser.transport.is_closed
    assert not watchers[0].is_there
    assert not watchers[0].send(b"{}")


@pytest.mark.parametrize("count", [2, 500])
def test_streams_sent_ahead_on_one_connection_are_one(browser: Any, watchers: list[Any], count: int) -> None:
    answer = browser.ask(EVENTS * count + LIVE)
    assert (len(watchers), answer.count(b"HTTP/1.1")) == (1, 1)
    assert browser.ask(EVENTS) == b""
    assert len(watchers) == 1
    assert not browser.connection._unread
    browser.transport.abort()
    assert not watchers[0].is_there


def test_stream_is_not_kept_back_behind_another_answer(
    browser: Any, server: Any, watchers: list[Any], post: Callable[..., bytes]
) -> None:
    assert browser.ask(post(INFER, ONE_NUMBER) + EVENTS + LIVE) == b""
    assert watchers == []
    server.requests[0].respond(InferenceResponse([]))
    assert re.findall(rb"HTTP/1.1 (\d+)", browser.take()) == [b"200", b"400", b"200"]


def test_stream_comes_behind_answers_that_are_out(browser: Any, watchers: list[Any]) -> None:
    answer = browser.ask(LIVE + EVENTS)
    assert answer.endswith(CHUNK)
    assert len(watchers) == 1


def test_stream_for_which_there_is_no_room_is_refused_with_the_reason(server: Any, client: Any) -> None:
    def refuse(watcher: Any) -> None:
        raise UnavailableError("so many are open")

    browser = reaching(client, server, refuse)
    head, _, body = browser.ask(EVENTS).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503")
    assert json.loads(body) == {"error": "so many are open"}
    assert browser.ask(LIVE).startswith(b"HTTP/1.1 200"), "the connection stays"


def of_site(site: str) -> bytes:
    """The request of a browser for such a page."""
    return EVENTS[:-2] + f"Sec-Fetch-Site: {site}\r\n\r\n".encode()


def of_key(secret: str, request: bytes = EVENTS) -> bytes:
    """The request with this key."""
    return request[:-2] + f"Authorization: Bearer {secret}\r\n\r\n".encode()


def ring(*secrets: str, group: str = "statistics") -> KeyRing:
    """Keys by these secrets for that group."""
    return KeyRing([key(secret, group) for secret in secrets], KeyMetrics())


def key(secret: str, group: str) -> ApiKey:
    return ApiKey(secret, (digest_of(secret.encode()),), frozenset((group,)))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "something new"])
def test_pages_of_other_addresses_get_no_stream_where_there_are_no_keys(
    browser: Any, server: Any, connect: Any, watchers: list[Any], site: str
) -> None:
    answer = browser.ask(of_site(site))
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"pages of other addresses" in answer
    assert browser.ask(of_site(site).replace(b"/api/events", b"")).startswith(b"HTTP/1.1 200"), "a link to the page"
    assert watchers == []
    with_keys = reaching(connect(), server, watchers.append, ring("a"))
    with_keys.feed(of_key("a", of_site(site)))
    assert len(watchers) == 1, "whoever has a key"


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_own_page_and_addresses_typed_in_get_their_stream(browser: Any, watchers: list[Any], site: str) -> None:
    assert browser.ask(of_site(site)).startswith(b"HTTP/1.1 200")
    assert len(watchers) == 1


@pytest.mark.parametrize("left", [[], [key("a", "inference")], [key("b", "statistics")]], ids=["none", "less", "other"])
def test_stream_ends_when_its_key_does_not_open_it_any_more(
    server: Any, connect: Any, watchers: list[Any], left: list[ApiKey]
) -> None:
    keys = ring("a")
    browser = reaching(connect(), server, watchers.append, keys)
    browser.feed(of_key("a"))
    assert watchers[0].send(b'{"n":1}')
    keys.replace([key("a", "statistics"), key("c", "inference")])
    assert watchers[0].send(b'{"n":1}')
    assert browser.take().endswith(CHUNK * 2)
    keys.replace(left)
    assert not watchers[0].send(b'{"n":1}')
    assert browser.take() == b"0\r\n\r\n"
    assert browser.transport.is_closed
    assert not watchers[0].is_there
