"""Paths, methods and headers to endpoints: what each answers, and in which form it is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest

from trireme.core.close_names import closest
from trireme.core.errors import UnavailableError
from trireme.frontends.http import mistaken_paths

NOT_FOUND = b'HTTP/1.1 404 Not Found\r\nContent-Length: 21\r\nContent-Type: text/plain\r\n\r\n{"error":"Not Found"}'
NOT_ALLOWED = b'{"error":"Method Not Allowed"}'


def json_answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def plain_answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\nContent-Type: text/plain\r\n\r\n%b" % (status, len(body), body)


@pytest.fixture
def ask(client: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """Asks, and lets tasks that answer later run to their end."""

    async def asked(raw: bytes) -> bytes:
        client.feed(raw)
        for _ in range(5):
            await asyncio.sleep(0)
        return client.take()  # type: ignore[no-any-return]

    return lambda raw: loop.run_until_complete(asked(raw))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/foo",
        "/v2/health",
        "/v2/models//infer",
        "/v2/models/ident/everything",
        f"/v2/models/{'i' * 256}/inferr",
        "/v2/models/ident/versions/abc",
        "/v2/models/ident/versions/1/trace/setting",
        "/v2/repository/a/b/index",
        "/v2/repository/models/ident/foo",
        "//v2/health/live",
        "/metrics",
    ],
)
def test_unknown_paths_are_not_found_whatever_the_method(client: Any, get: Any, post: Any, path: str) -> None:
    assert client.ask(get(path)) == NOT_FOUND
    assert client.ask(post(path, b"")) == NOT_FOUND


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/v2/", "did you mean '/v2'?"),
        ("/v2/models", "POST /v2/repository/index lists the models"),
        ("/v2/models/ident/", "did you mean '/v2/models/ident'?"),
        ("/v2/model/ident/infer", "did you mean '/v2/models/ident/infer'?"),
        ("/v2/models/ident/inferr", "did you mean '/v2/models/ident/infer'?"),
        ("/v2/models/ident/versions/1/generate_steam", "did you mean '/v2/models/ident/versions/1/generate_stream'?"),
        ("/v2/models/ident/version/1/infer", "did you mean '/v2/models/ident/versions/1/infer'?"),
        ("/v2/health/redy", "did you mean '/v2/health/ready'?"),
        ("/v2/repository/model/ident/load", "did you mean '/v2/repository/models/ident/load'?"),
    ],
)
def test_path_that_does_not_exist_is_answered_with_what_was_meant(
    client: Any, get: Any, path: str, advice: str
) -> None:
    assert client.ask(get(path)) == plain_answer(f'{{"error":"Not Found: {advice}"}}'.encode(), b"404 Not Found")


def test_what_was_meant_is_looked_for_once_and_compares_no_words_twice(
    client: Any, get: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, tuple[str, ...]]] = []

    def counted(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
        compared.append((name, tuple(candidates)))
        return closest(name, compared[-1][1], cutoff)

    monkeypatch.setattr(mistaken_paths, "closest", counted)
    asked = get("/v2/cudasharedmemori/regio/x/registe")
    answers = {client.ask(asked) for _ in range(3)}
    (answer,) = answers
    assert b"did you mean '/v2/cudasharedmemory/region/x/register'?" in answer
    assert len(compared) == len(set(compared))


@pytest.mark.parametrize(
    ("method", "path", "form"),
    [
        ("POST", "/v2/health/live", plain_answer),
        ("PUT", "/v2/health/ready", plain_answer),
        ("GET", "/v2/models/ident/infer", plain_answer),
        ("GET", "/v2/models/ident/generate", json_answer),
        ("DELETE", "/v2/models/ident", json_answer),
        ("POST", "/v2", json_answer),
        ("POST", "/v2/models/stats", json_answer),
        ("GET", "/v2/repository/index", json_answer),
        ("GET", "/v2/repository/models/ident/load", json_answer),
        ("PUT", "/v2/trace/setting", json_answer),
        ("PUT", "/v2/logging", json_answer),
        ("POST", "/v2/systemsharedmemory/status", json_answer),
        ("GET", "/v2/cudasharedmemory/unregister", json_answer),
    ],
)
def test_the_wrong_method_is_not_allowed(client: Any, method: str, path: str, form: Any) -> None:
    raw = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
    assert client.ask(raw) == form(NOT_ALLOWED, b"405 Not Allowed")


def test_the_answer_to_head_has_no_body(client: Any) -> None:
    answer = client.ask(b"HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer == b"HTTP/1.1 405 Not Allowed\r\nContent-Length: 30\r\nContent-Type: text/plain\r\n\r\n"


def test_health_answers_are_empty(ask: Any, server: Any, get: Any) -> None:
    assert ask(get("/v2/health/live")) == plain_answer(b"")
    assert ask(get("/v2/health/ready?verbose=1")) == plain_answer(b"")
    assert ask(get("/v2/models/ident/versions/1/ready")) == plain_answer(b"")
    server.is_ready = False
    assert ask(get("/v2/health/ready")) == plain_answer(b"", b"400 Bad Request")
    not_ready = plain_answer(b'{"error":"Model version not ready"}', b"400 Bad Request")
    assert ask(get("/v2/models/nope/ready")) == not_ready
    assert ask(get("/v2/models/ident/versions/9/ready")) == not_ready


def test_an_exiting_server_says_so(ask: Any, server: Any, get: Any) -> None:
    server.is_exiting = True
    exiting = plain_answer(b'{"error":"Server exiting"}', b"503 Service Unavailable")
    assert ask(get("/v2/health/live")) == exiting
    assert ask(get("/v2/health/ready")) == exiting


def test_readiness_that_cannot_be_told_is_an_error(ask: Any, server: Any, get: Any) -> None:
    async def refuse() -> bool:
        raise UnavailableError("Server exiting")

    server.health.is_ready = refuse
    assert ask(get("/v2/health/ready")) == plain_answer(b'{"error":"Server exiting"}', b"503 Service Unavailable")


def test_metadata_is_json(ask: Any, get: Any) -> None:
    assert ask(get("/v2")) == json_answer(
        b'{"name":"triton","version":"2.73.0","extensions":["classification","logging"]}'
    )
    expected = (
        b'{"name":"ident","versions":["1"],"platform":"python",'
        b'"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[-1,-1]}],"outputs":[]}'
    )
    paths = ("ident", "ident/versions/1", "id%65nt", "ident?x=y")
    for path in (*(f"/v2/models/{path}" for path in paths), "http://host:1/v2/models/ident?x=y"):
        assert ask(get(path)) == json_answer(expected)
    assert ask(get("/v2/models/ident/config")) == json_answer(b'{"name":"ident"}')
    assert ask(get("/v2/models/id%2Fent")) == json_answer(
        b'{"error":"Request for unknown model: \'id/ent\' is not found"}', b"404 Not Found"
    )


def test_statistics_of_one_or_all_models(ask: Any, get: Any) -> None:
    for path, name in (("/v2/models/stats", "every"), ("/v2/models/ident/stats", "ident")):
        (stats,) = json.loads(ask(get(path)).partition(b"\r\n\r\n")[2])["model_stats"]
        duration = {"count": 2, "ns": 30}
        assert list(stats) == [
            "name",
            "version",
            "last_inference",
            "inference_count",
            "execution_count",
            "inference_stats",
            "response_stats",
            "batch_stats",
            "memory_usage",
        ]
        assert (stats["name"], stats["version"], stats["last_inference"]) == (name, "1", 7)
        assert stats["inference_stats"]["cache_miss"] == duration
        assert stats["batch_stats"][0] == {
            "batch_size": 4,
            "compute_input": duration,
            "compute_infer": duration,
            "compute_output": duration,
        }


def test_the_index_may_be_asked_for_ready_models(ask: Any, server: Any, post: Any) -> None:
    listed = b'[{"name":"ident","version":"1","state":"READY"},{"name":"other"}]'
    assert ask(post("/v2/repository/index", b"")) == json_answer(listed)
    assert ask(post("/v2/repository/any/index", b'{"ready":true}')) == json_answer(listed)
    assert server.recorded == [("index", False), ("index", True)]
    assert ask(post("/v2/repository/index", b'{"ready":1}')) == json_answer(
        b'{"error":"Invalid value for \'ready\': expected a boolean"}', b"400 Bad Request"
    )


def test_models_are_loaded_and_unloaded(ask: Any, server: Any, post: Any) -> None:
    content = base64.b64encode(b"\0weights").decode()
    body = json.dumps({"parameters": {"config": "{}", "file:1/model.bin": content}}).encode()
    assert ask(post("/v2/repository/models/ident/load", b"")) == json_answer(b"")
    assert ask(post("/v2/repository/models/ident/load", body)) == json_answer(b"")
    assert ask(post("/v2/repository/models/ident/unload", b"")) == json_answer(b"")
    assert ask(post("/v2/repository/models/ident/unload", b'{"parameters":{"unload_dependents":true}}')) == json_answer(
        b""
    )
    assert server.recorded == [
        ("load", "ident", None, {}),
        ("load", "ident", "{}", {"file:1/model.bin": b"\0weights"}),
        ("unload", "ident", False),
        ("unload", "ident", True),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("RR/models/ident/load", b"", b"501 Not Implemented", "'repository_name' specification is not supported"),
        (
            "models/ident/load",
            b'{"parameters":{"foo":"x"}}',
            b"500 Internal Server Error",
            "unexpected error on creating Triton parameter",
        ),
        (
            "models/ident/load",
            b'{"parameters":{"config":3}}',
            b"500 Internal Server Error",
            "attempt to access JSON non-string as string",
        ),
        (
            "models/ident/load",
            b'{"parameters":[]}',
            b"500 Internal Server Error",
            "attempt to get members for non-object",
        ),
        (
            "models/ident/load",
            b"{",
            b"500 Internal Server Error",
            "failed to parse the request JSON buffer: Missing a name for object member. at 1",
        ),
        ("models/broken/load", b"", b"400 Bad Request", "load failed"),
    ],
)
def test_load_requests_that_are_wrong(ask: Any, post: Any, path: str, body: bytes, status: bytes, message: str) -> None:
    expected = json.dumps({"error": message}, separators=(",", ":")).encode()
    assert ask(post(f"/v2/repository/{path}", body)) == json_answer(expected, status)


def test_settings_are_read_and_changed(ask: Any, server: Any, get: Any, post: Any) -> None:
    log = json_answer(b'{"log_file":"","log_info":true}')
    assert ask(get("/v2/logging")) == log
    assert ask(post("/v2/logging", b'{"log_info":false}')) == log
    assert ask(get("/v2/trace/setting")) == json_answer(b'{"trace_level":["OFF"],"model":""}')
    trace = json_answer(b'{"trace_level":["OFF"],"model":"ident"}')
    assert ask(get("/v2/models/ident/trace/setting")) == trace
    assert ask(post("/v2/models/ident/trace/setting", b'{"trace_rate":null}')) == trace
    assert server.recorded == [("log", {"log_info": False}), ("trace", "ident", {"trace_rate": None})]
    assert b"The document is empty. at 0" in ask(post("/v2/trace/setting", b""))


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_shared_memory_of_clients_is_disabled(ask: Any, get: Any, post: Any, kind: str) -> None:
    path = f"/v2/{kind}sharedmemory"
    assert ask(get(f"{path}/status")) == json_answer(b"[]")
    missing = f'{{"error":"Unable to find {kind} shared memory region: \'r\'"}}'.encode()
    assert ask(get(f"{path}/region/r/status")) == json_answer(missing, b"404 Not Found")
    disabled = json_answer(
        b'{"error":"Client shared memory is disabled. Start the server with \'--allow-client-shm=true\' to enable."}',
        b"501 Not Implemented",
    )
    for change in ("region/r/register", "region/r/unregister", "unregister"):
        assert ask(post(f"{path}/{change}", b"{}")) == disabled


def test_pages_of_other_addresses_change_nothing(connect: Any, get: Any, post: Any) -> None:
    client = connect()
    for origin in ("http://elsewhere.example", "null"):
        refused = client.ask(post("/v2/logging", b"{}", f"Origin: {origin}"))
        assert b"403 Forbidden" in refused
        assert b"pages of other addresses" in refused
    own = post("/v2/logging", b"{}", "Origin: http://localhost:8000").replace(b"Host: x", b"Host: localhost:8000")
    assert b"200 OK" in client.ask(own)
    led_here = post("/v2/logging", b"{}", "Origin: http://x")  # by a name that somebody has made point here
    assert b"name that could be anybody's" in client.ask(led_here)
    assert b"200 OK" in client.ask(get("/v2", "Origin: http://elsewhere.example"))


def test_restricted_apis_want_their_header(connect: Any, get: Any, post: Any) -> None:
    client = connect(restricted_apis={"health": ("Admin-Key", "secret"), "model-repository": ("other", "x")})
    refused = plain_answer(b'{"error":"This API is restricted, expecting header \'Admin-Key\'"}', b"403 Forbidden")
    assert client.ask(get("/v2/health/live")) == refused
    assert client.ask(get("/v2/health/live", "Admin-Key: wrong")) == refused
    assert client.ask(get("/v2/health/live", "admin-key: secret")) == plain_answer(b"")
    assert b"403 Forbidden" in client.ask(post("/v2/repository/index", b""))
    assert b"200 OK" in client.ask(get("/v2"))
