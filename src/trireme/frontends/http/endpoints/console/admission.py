"""Who may look at the console: by default whoever has a key or, where there are none, who sits at this machine."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from trireme.core.errors import ForbiddenError
from trireme.frontends.http.exchange import Exchange

_LOCAL_HOST: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{0,5})?", re.ASCII | re.IGNORECASE)
_OF_PROXIES: Final = frozenset(("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"))
_OWN_PAGES: Final = frozenset(("same-origin", "none"))
"""What browsers say of a page of this server, and of an address that somebody typed in."""
_NOT_FOR_OTHER_PAGES: Final = (
    "the console's data is not for pages of other addresses, which the browser says this is (Sec-Fetch-Site), because "
    "the server has no API keys"
)
_REFUSAL: Final = (
    "the console answers on this machine alone, because the server has no API keys: open it at http://localhost:PORT/, "
    "or start the server with --api-keys, or with --console=on to show it to everybody who reaches the port"
)


def check_local(exchange: Exchange) -> None:
    """Raises ForbiddenError for a client elsewhere, for what a proxy says it passes on, and for a page elsewhere that
    has this machine's address: what comes from a name that was made to point here names another host."""
    headers = {name.lower(): value for name, value in exchange.head.headers}
    is_here = _is_loopback(exchange.connection.peer) and headers.keys().isdisjoint(_OF_PROXIES)
    if not (is_here and _LOCAL_HOST.fullmatch(headers.get("host", ""))):
        raise ForbiddenError(_REFUSAL)


def check_own_page(exchange: Exchange) -> None:
    """Raises ForbiddenError where a browser asks for a page of another address: that could not read the answer, and
    would have the server work for it. Programs, and browsers on addresses that they do not trust, say nothing of it."""
    for name, value in exchange.head.headers:
        if name.lower() == "sec-fetch-site" and value.strip().lower() not in _OWN_PAGES:
            raise ForbiddenError(_NOT_FOR_OTHER_PAGES)


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False  # the client is gone, or nobody knows where it is
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
