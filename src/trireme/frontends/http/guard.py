"""The gate in front of HTTP endpoints: who asks is looked up for every request, how to look is known from its head."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trireme.access.actor import acting
from trireme.access.gate import Gate
from trireme.access.groups import CONTROL_GROUPS
from trireme.access.key_ring import Credential
from trireme.access.tracked_request import RequestTarget, TrackedRequest
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead

_BEARER: Final = "bearer "


class Guard:
    """Stands before endpoints. Where the gate does not watch a group, its endpoints are left as they are."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def guarded(self, head: RequestHead, endpoint: Endpoint, group: str) -> Endpoint:
        """The endpoint for requests with this head, behind the gate."""
        gate = self._gate
        if not gate.watches(group):
            return endpoint
        target = RequestTarget("HTTP", head.method, head.path, group, head.model_name)
        guarded = _GuardedEndpoint(gate, target, gate.credential(_key_in(head, gate.key_header)[1]), endpoint)
        return replace(endpoint, answer=guarded.answer, admit=guarded.admit)

    @property
    def has_keys(self) -> bool:
        """Whether whoever asks has to show a key."""
        return self._gate.keys is not None

    def key_header_of(self, head: RequestHead) -> str:
        """The header that carries the client's key, in lower case, which no model is to see; "" for none."""
        return "" if self._gate.keys is None else _key_in(head, self._gate.key_header)[0]


class _GuardedEndpoint:
    """One way in: the same for all requests with the same head."""

    __slots__ = ("_credential", "_endpoint", "_gate", "_target")

    def __init__(self, gate: Gate, target: RequestTarget, credential: Credential | None, endpoint: Endpoint) -> None:
        self._gate = gate
        self._target = target
        self._credential = credential
        self._endpoint = endpoint

    def answer(self, exchange: Exchange) -> None:
        """Lets the request in, or raises AccessError."""
        tracked = self._gate.arrive(self._target, exchange.connection.peer, self._credential)
        exchange.tracked = tracked  # also of a refused one, whose answer is written down
        self._gate.check(self._target, tracked)
        tracked.begin_request()
        tracked.count_received(len(exchange.body))
        if self._target.group in CONTROL_GROUPS:
            with acting(tracked.actor):
                self._endpoint.answer(exchange)
        else:
            self._endpoint.answer(exchange)

    def admit(self, head: RequestHead, peer: str) -> None:
        """Raises AccessError for a request whose body need not be read. Quotas are looked at when it is there."""
        self._gate.check(self._target, self._gate.arrive(self._target, peer, self._credential))


def refused_request(gate: Gate, head: RequestHead | None, peer: str) -> TrackedRequest | None:
    """For the log: that of a request that no endpoint gets to see, as far as its head was read. None where nobody
    writes it down."""
    if gate.log is None:
        return None
    if head is None:
        return gate.arrive(RequestTarget("HTTP", "-", "-", ""), peer, None)
    group = "" if head.endpoint is None else head.endpoint.category
    target = RequestTarget("HTTP", head.method, head.path, group, head.model_name)
    return gate.arrive(target, peer, gate.credential(_key_in(head, gate.key_header)[1]))


def _key_in(head: RequestHead, key_header: str) -> tuple[str, bytes | None]:
    """The header that carries the key and the key, from the header of one's choice before `Authorization`."""
    bearer: str | None = None
    for name, value in head.headers:
        lowered = name.lower()
        is_bearer = value[:7].lower() == _BEARER
        if key_header and lowered == key_header:
            return key_header, _encoded(value[7:] if is_bearer else value)
        if lowered == "authorization" and bearer is None and is_bearer:
            bearer = value[7:]
    return ("", None) if bearer is None else ("authorization", _encoded(bearer))


def _encoded(secret: str) -> bytes:
    return secret.strip().encode("utf-8", "surrogateescape")
