"""Calls of a model that are refused before there is a request of them."""

from __future__ import annotations

from trireme.core.errors import NotFoundError, ServingError
from trireme.frontends.http.exchange import Exchange
from trireme.server.call import Calls


def refuse_unread(calls: Calls, exchange: Exchange, name: str, version: str, error: ServingError) -> None:
    """Answers with the error and tells whoever watches refusals. Of a request that there was they know already, and of
    models that are not there nobody wants to."""
    if exchange.request is None and not exchange.is_answered and not isinstance(error, NotFoundError):
        calls.refuse_unread(name, version, error)
    exchange.send_error(error)
