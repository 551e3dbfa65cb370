"""Names in paths that a URL cannot hold as they are: clients write them percent-encoded, in UTF-8."""

from __future__ import annotations

import pytest

from trireme.frontends.http.head import Endpoint, RequestHead, parse_head
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Router, route

ANSWER = Endpoint("inference", lambda _exchange: None)
ROUTER = Router(
    [
        route("/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?/infer", POST=ANSWER),
        route("/v2/(?P<kind>system|cuda)sharedmemory/region/(?P<region>[^/]+)/register", POST=ANSWER),
    ],
    HttpFrontendOptions(),
)


def resolved(path: str) -> RequestHead:
    head = parse_head(f"POST {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    ROUTER.resolve(head)
    return head


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("plain", "plain"),
        ("mod%C3%A8le", "modèle"),
        ("mod%c3%a8le", "modèle"),
        ("modèle", "modèle"),
        ("two%20words", "two words"),
        ("a+b", "a+b"),
        ("%E6%A8%A1%E5%9E%8B", "模型"),
        ("100%25", "100%"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("up%2Fand%2Faway", "up/and/away"),
        ("latin%E8", "latin\udce8"),
    ],
)
def test_name_of_a_model_is_decoded(written: str, name: str) -> None:
    for version in ("", "/versions/3"):
        head = resolved(f"/v2/models/{written}{version}/infer")
        assert head.endpoint is ANSWER
        assert (head.model_name, head.model_version) == (name, version.removeprefix("/versions/"))


def test_encoded_slash_does_not_change_what_is_asked_for() -> None:
    assert resolved("/v2/models/a%2Finfer").endpoint is not ANSWER
    assert resolved("/v2/models%2Fa/infer").endpoint is not ANSWER


def test_other_names_are_decoded_as_well() -> None:
    head = resolved("/v2/systemsharedmemory/region/r%C3%A9gion%201/register")
    assert head.names == ("system", "région 1")
