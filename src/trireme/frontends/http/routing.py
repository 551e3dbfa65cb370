"""From a request's method, path and headers to the endpoint that answers it, or to the refusal that does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final
from urllib.parse import unquote

from trireme.access.gate import Gate
from trireme.access.groups import CONTROL_GROUPS
from trireme.core.errors import InvalidArgumentError
from trireme.frontends.browser_origin import is_of_another_page
from trireme.frontends.header_forwarding import is_reserved, refusal_of
from trireme.frontends.http import answers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.guard import Guard
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions

_OTHER_PAGE: Final = (
    "what changes the server is not done for pages of other addresses, which a browser names as the Origin, nor for a "
    "name that could be anybody's: open the page at the server's address or localhost, send the request without that "
    "header, or start the server with --api-keys"
)


@dataclass(frozen=True, slots=True)
class Route:
    """One form of path and its endpoints by method; the groups `model` and `version` of the pattern name the model,
    all other groups are handed over in order."""

    pattern: re.Pattern[str]
    endpoints: Mapping[str, Endpoint]


Refusal = Callable[[RequestHead, Sequence[Route], Sequence[str]], "Endpoint | None"]
"""Makes what answers a head that no route takes, or none with its method: of all routes, and the allowed methods.
None where the usual refusal does."""


def route(pattern: str, **endpoints: Endpoint) -> Route:
    """A route with its endpoints by method name."""
    return Route(re.compile(pattern), endpoints)


class Router:
    """Resolves heads against the routes, in their order, and the restrictions of the options."""

    def __init__(
        self,
        routes: Sequence[Route],
        options: HttpFrontendOptions,
        guard: Guard | None = None,
        refusals: Mapping[str, Refusal] | None = None,
    ) -> None:
        """`refusals` are for what begins with their paths and is not answered."""
        self._routes = routes
        self._refusals = refusals or {}
        self._translate = options.translation
        self._guard = guard or Guard(Gate())
        self._restrictions = options.restricted_apis
        pattern = options.header_forward_pattern
        self._forward = re.compile(pattern, re.IGNORECASE) if pattern else None

    def resolve(self, head: RequestHead) -> None:
        """Sets the head's endpoint and what the path names."""
        if self._translate is not None:
            try:
                self._translate(head)
            except InvalidArgumentError as error:
                head.endpoint = self._guard.guarded(head, refusing(400, error.message), "")
                return
        for candidate in self._routes:
            match = candidate.pattern.fullmatch(head.path)
            if match is not None:
                _take_names(head, match)
                category = next(iter(candidate.endpoints.values())).category
                head.endpoint = self._guard.guarded(head, self._choose(head, candidate.endpoints), category)
                return
        refusal = self._refuse(head, ()) or refusing(404, "Not Found")
        head.endpoint = self._guard.guarded(head, refusal, "")

    def _refuse(self, head: RequestHead, allowed: Sequence[str]) -> Endpoint | None:
        """In the form of the API that the path belongs to; None where it has none of its own."""
        for prefix, refusal in self._refusals.items():
            if head.path.startswith(prefix):
                return refusal(head, self._routes, allowed)
        return None

    def _choose(self, head: RequestHead, endpoints: Mapping[str, Endpoint]) -> Endpoint:
        some = next(iter(endpoints.values()))
        restriction = self._restrictions.get(some.category)
        if restriction is not None and not _has_header(head, *restriction):
            return refusing(403, f"This API is restricted, expecting header '{restriction[0]}'")
        endpoint = endpoints.get(head.method)
        if endpoint is None:
            return self._refuse(head, tuple(endpoints)) or refusing(405, "Method Not Allowed", some.is_plain)
        if some.category in CONTROL_GROUPS and not self._guard.has_keys and is_of_another_page(head.headers):
            return refusing(403, _OTHER_PAGE, is_plain=False)
        if endpoint.forwards_headers and self._forward is not None:
            reserved = self._forward_headers(head, self._forward)
            if reserved is not None:
                return refusing(400, refusal_of(reserved), is_plain=False)
        return endpoint

    def _forward_headers(self, head: RequestHead, pattern: re.Pattern[str]) -> str | None:
        """Sets what is forwarded; returns a matching name that must not be."""
        forwarded: dict[str, str] = {}
        hidden = self._guard.key_header_of(head)
        for name, value in head.headers:
            if pattern.search(name) and name.lower() != hidden:
                if is_reserved(name):
                    return name
                forwarded.setdefault(name, value)
        head.forwarded = forwarded or None
        return None


def _take_names(head: RequestHead, match: re.Match[str]) -> None:
    named = match.groupdict("")
    if "%" in head.path:  # after the match: an encoded slash is part of a name
        named = {group: unquote(name, errors="surrogateescape") for group, name in named.items()}
    head.model_name = named.pop("model", "")
    head.model_version = named.pop("version", "")
    head.names = tuple(named.values())


def _has_header(head: RequestHead, key: str, value: str) -> bool:
    wanted = key.lower()
    given = next((given for name, given in head.headers if name.lower() == wanted), None)
    return given is not None and compare_digest(
        given.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape")
    )


def refusing(status: int, message: str, is_plain: bool = True) -> Endpoint:
    """An endpoint that answers every request with this error."""
    form = answers.plain_error if is_plain else answers.json_error

    def answer(exchange: Exchange) -> None:
        exchange.send(form(exchange.head, status, message))

    return Endpoint("", answer, is_plain, reads_body=False)
