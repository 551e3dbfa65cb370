"""Keys on HTTP: who is let in where, in which form the others are told, and what is counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trireme.access.api_key import ApiKey, Quota
from trireme.access.gate import Gate
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_ring import KeyRing
from trireme.access.key_secret import digest_of
from trireme.access.tracked_request import AccessRecord
from trireme.frontends.http.options import MetricsFrontendOptions
from trireme.frontends.metrics import MetricsFrontend

BODY = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'
INFER = "/v2/models/ident/infer"
BEARER = "Authorization: Bearer "


class Records(list[AccessRecord]):
    def record(self, record: AccessRecord) -> None:
        self.append(record)


def key(name: str, *groups: str, **quota: Any) -> ApiKey:
    return ApiKey(name, (digest_of(name.encode()),), frozenset(groups), Quota(**quota))


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def gate(records: Records) -> Gate:
    keys = [
        key("infer", "inference"),
        key("ops", "model-repository", "metrics", "health", "statistics"),
        key("slow", "inference", requests_per_second=0.01),
        key("one", "inference", requests_in_flight=1),
    ]
    return Gate(KeyRing(keys, KeyMetrics()), records, "X-Api-Key")


@pytest.fixture
def guarded(connect: Any, gate: Gate) -> Any:
    return connect(gate=gate)


def status(answer: bytes) -> int:
    return int(answer[9:12])


@pytest.mark.parametrize("header", [BEARER + "infer", "authorization: bearer infer", "x-api-key: infer"])
def test_a_key_for_the_group_is_let_in(guarded: Any, post: Any, header: str) -> None:
    assert status(guarded.ask(post(INFER, BODY, header))) == 200


@pytest.mark.parametrize(
    "headers",
    [(), (BEARER + "nobody",), (BEARER,), ("Authorization: Basic infer",), ("X-Api-Key: nobody", BEARER + "infer")],
)
def test_others_are_told_how_to_send_a_key(guarded: Any, post: Any, server: Any, headers: tuple[str, ...]) -> None:
    body = b"{\"error\":\"a valid API key is needed: send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'\"}"
    assert guarded.ask(post(INFER, BODY, *headers)) == (
        b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm="trireme"\r\nContent-Length: %d\r\n'
        b"Content-Type: text/plain\r\n\r\n%b" % (len(body), body)
    )
    assert server.requests == []


def test_a_key_for_another_group_is_forbidden(guarded: Any, post: Any, get: Any) -> None:
    answer = guarded.ask(post("/v2/repository/index", b"", BEARER + "infer"))
    assert status(answer) == 403
    assert b"the key 'infer' is not allowed to use 'model-repository'" in answer
    assert status(guarded.ask(get("/v2/models/stats", BEARER + "infer"))) == 403
    assert status(guarded.ask(get("/v2/models/stats", BEARER + "ops"))) == 200
    assert status(guarded.ask(get("/v2/health/live", BEARER + "ops"))) == 200


def test_the_wrong_method_is_told_to_those_who_have_a_key(guarded: Any, get: Any) -> None:
    assert status(guarded.ask(get(INFER))) == 401
    assert status(guarded.ask(get(INFER, BEARER + "infer"))) == 405


def test_authorization_itself_can_be_the_header_of_ones_choice(connect: Any, post: Any) -> None:
    client = connect(gate=Gate(KeyRing([key("infer", "inference")], KeyMetrics()), key_header="Authorization"))
    assert status(client.ask(post(INFER, BODY, BEARER + "infer"))) == 200
    assert status(client.ask(post(INFER, BODY, "Authorization: infer"))) == 200
    assert status(client.ask(post(INFER, BODY, "Authorization: Basic infer"))) == 401


def test_what_is_not_there_needs_no_key(guarded: Any, get: Any) -> None:
    assert status(guarded.ask(get("/nothing"))) == 404


def test_clients_without_a_key_may_do_what_the_file_says(connect: Any, post: Any, get: Any) -> None:
    anonymous = ApiKey("anonymous", (), frozenset(("health",)))
    client = connect(gate=Gate(KeyRing([key("infer", "inference"), anonymous], KeyMetrics())))
    assert status(client.ask(get("/v2/health/live"))) == 200
    assert status(client.ask(post(INFER, BODY))) == 401
    assert status(client.ask(get("/v2/health/live", BEARER + "nobody"))) == 401


def test_a_key_that_is_removed_ends_on_connections_that_used_it(guarded: Any, post: Any, gate: Gate) -> None:
    assert status(guarded.ask(post(INFER, BODY, BEARER + "infer"))) == 200
    assert status(guarded.ask(post(INFER, BODY, BEARER + "later"))) == 401
    assert gate.keys is not None
    gate.keys.replace([key("later", "inference")])
    assert status(guarded.ask(post(INFER, BODY, BEARER + "infer"))) == 401
    assert status(guarded.ask(post(INFER, BODY, BEARER + "later"))) == 200


def test_openai_endpoints_refuse_in_the_shape_of_their_api(guarded: Any, get: Any) -> None:
    head, _, body = guarded.ask(get("/v1/models")).partition(b"\r\n\r\n")
    assert status(head) == 401
    assert b"WWW-Authenticate: Bearer" in head
    error = json.loads(body)["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    error = json.loads(guarded.ask(get("/v1/models", BEARER + "infer")).partition(b"\r\n\r\n")[2])["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "insufficient_permissions")


def test_triton_restrictions_hold_beside_keys(connect: Any, gate: Gate, post: Any) -> None:
    client = connect(gate=gate, restricted_apis={"inference": ("secret", "word")})
    assert status(client.ask(post(INFER, BODY, "secret: word"))) == 401
    assert status(client.ask(post(INFER, BODY, BEARER + "infer"))) == 403
    assert status(client.ask(post(INFER, BODY, BEARER + "infer", "secret: word"))) == 200


def test_a_restriction_with_an_empty_value_needs_its_header_all_the_same(connect: Any, post: Any) -> None:
    client = connect(restricted_apis={"inference": ("secret", "")})
    assert status(client.ask(post(INFER, BODY))) == 403
    assert status(client.ask(post(INFER, BODY, "secret:"))) == 200


def test_the_body_of_a_stranger_is_not_waited_for(guarded: Any) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n"
    assert status(guarded.ask(f"{head}\r\n".encode())) == 401
    assert guarded.transport.is_closed


def test_a_large_body_with_a_key_is_received(guarded: Any, post: Any) -> None:
    request = post(INFER, BODY + b" " * 100_000, BEARER + "infer")
    assert guarded.ask(request[:1000]) == b""
    assert status(guarded.ask(request[1000:])) == 200


def test_a_used_up_quota_says_when_to_come_again(guarded: Any, post: Any) -> None:
    assert status(guarded.ask(post(INFER, BODY, BEARER + "slow"))) == 200
    answer = guarded.ask(post(INFER, BODY, BEARER + "slow"))
    assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 100\r\n")
    assert b"requests_per_second is 0.01; try again in 100 s" in answer


def test_requests_in_flight_end_with_their_answer_or_their_client(connect: Any, gate: Gate, post: Any) -> None:
    quiet = "/v2/models/quiet/infer"
    first, second = connect(gate=gate), connect(gate=gate)
    first.feed(post(quiet, BODY, BEARER + "one"))
    answer = second.ask(post(INFER, BODY, BEARER + "one"))
    assert status(answer) == 429
    assert b"Retry-After: 1\r\n" in answer
    first.transport.abort()
    assert status(second.ask(post(INFER, BODY, BEARER + "one"))) == 200
    assert status(second.ask(post(INFER, BODY, BEARER + "one"))) == 200
    assert gate.keys is not None
    assert gate.keys.metrics.of("one").in_flight == 0


def test_requests_bytes_and_refusals_are_counted(guarded: Any, post: Any, get: Any, gate: Gate) -> None:
    answer = guarded.ask(post(INFER, BODY, BEARER + "infer"))
    guarded.ask(get("/v2/health/live", BEARER + "infer"))
    guarded.ask(get("/v2/health/live"))
    assert gate.keys is not None
    stats = gate.keys.metrics.of("infer")
    assert (stats.request_count, stats.received_bytes, stats.sent_bytes) == (1, len(BODY), len(answer))
    assert stats.refusals == {"group": 1}
    assert gate.keys.metrics.unauthenticated_count == 1


def test_every_request_is_told_once_with_who_and_what(guarded: Any, post: Any, get: Any, records: Records) -> None:
    answer = guarded.ask(post(INFER, BODY, BEARER + "infer"))
    guarded.ask(get("/v2/health/live"))
    guarded.ask(get("/nothing"))
    first, second, third = records
    assert (first.key, first.target.path, first.model, first.status) == ("infer", INFER, "ident", 200)
    assert (first.received_bytes, first.sent_bytes, first.request_count) == (len(BODY), len(answer), 1)
    assert not first.is_cut_off
    assert (second.key, second.status, second.target.group, second.request_count) == ("anonymous", 401, "health", 0)
    assert (third.status, third.target.path, third.target.group) == (404, "/nothing", "")


def test_a_key_that_nobody_has_is_told_from_none(guarded: Any, post: Any, get: Any, records: Records) -> None:
    guarded.ask(get("/v2/health/live", BEARER + "guessed"))
    guarded.ask(post(INFER, bytes(100_000), BEARER + "guessed"))
    assert [(record.key, record.status) for record in records] == [("(unknown)", 401)] * 2


CHUNKED = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n{BEARER}infer\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n"
TOO_LARGE = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n{BEARER}infer\r\nContent-Length: {1 << 40}\r\n\r\n"
NOBODY = f"POST /v2/models/nobody/infer HTTP/1.1\r\nHost: x\r\n{BEARER}infer\r\nContent-Length: 100000\r\n\r\n"


@pytest.mark.parametrize(
    ("request_text", "told"),
    [
        (TOO_LARGE, ("infer", 413, "POST", INFER, "ident")),
        (CHUNKED, ("infer", 400, "POST", INFER, "ident")),
        (NOBODY + "x" * 100_000, ("infer", 404, "POST", "/v2/models/nobody/infer", "nobody")),
        ("GET / HTTP/1.1\r\nX: " + "y" * 100_000, ("anonymous", 431, "-", "-", "")),
        ("no request at all\r\n\r\n", ("anonymous", 400, "-", "-", "")),
    ],
)
def test_what_is_refused_before_it_is_read_is_told(
    guarded: Any, records: Records, loop: Any, request_text: str, told: tuple[Any, ...]
) -> None:
    async def story() -> None:
        guarded.ask(request_text.encode())

    loop.run_until_complete(story())
    (record,) = records
    assert (record.key, record.status, record.target.method, record.target.path, record.model) == told


def test_a_client_that_leaves_is_told_as_cut_off(guarded: Any, post: Any, records: Records) -> None:
    guarded.feed(post("/v2/models/quiet/infer", BODY, BEARER + "infer"))
    guarded.transport.abort()
    assert [(record.model, record.status, record.is_cut_off) for record in records] == [("quiet", 0, True)]


def test_the_metrics_port_needs_a_key_for_metrics(server: Any, client: Any, gate: Gate, get: Any) -> None:
    metrics = type(client)(MetricsFrontend(server, MetricsFrontendOptions(), gate).listener)
    assert status(metrics.ask(get("/metrics"))) == 401
    assert status(metrics.ask(get("/metrics", BEARER + "infer"))) == 403
    assert server.metrics_page() in metrics.ask(get("/metrics", BEARER + "ops"))


def test_without_keys_and_log_endpoints_are_the_very_same(connect: Any) -> None:
    """So that a request costs what it cost before there were keys."""
    plain, logged = connect(), connect(gate=Gate(log=Records()))
    raw = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    endpoints = [client.connection._owner.heads.read(raw).endpoint for client in (plain, logged)]
    assert [endpoint.answer.__name__ for endpoint in endpoints] == ["answer", "answer"]
    assert [type(endpoint.answer.__self__).__name__ for endpoint in endpoints] == ["InferEndpoint", "_GuardedEndpoint"]


def test_a_key_is_not_forwarded_to_models(connect: Any, gate: Gate, post: Any, server: Any) -> None:
    client = connect(gate=gate, header_forward_pattern="authorization|x-.*")
    client.ask(post(INFER, BODY, BEARER + "infer", "X-Trace: 7"))
    client.ask(post(INFER, BODY, "X-Api-Key: infer", "Authorization: Bearer for-the-model"))
    assert [request.parameters for request in server.requests] == [
        {"X-Trace": "7"},
        {"Authorization": "Bearer for-the-model"},
    ]


def test_without_keys_headers_are_forwarded_as_ever(connect: Any, post: Any, server: Any) -> None:
    client = connect(header_forward_pattern="authorization")
    client.ask(post(INFER, BODY, BEARER + "infer"))
    assert server.requests[0].parameters == {"Authorization": "Bearer infer"}
