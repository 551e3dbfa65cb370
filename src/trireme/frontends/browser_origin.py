"""Whether a browser asks for a page of the server's own, or for one that somebody else has made."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address


def is_of_another_page(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a browser sends it for a page that is not this server's: such a page needs no key to have it sent.

    Programs name no Origin. A browser compares names alone, and whoever made the page may let its name point here (DNS
    rebinding), so its own names are those that nobody else can have.
    """
    by_name = {name.lower(): value for name, value in headers}
    origin = by_name.get("origin")
    if origin is None:
        return False
    host = by_name.get("host", "").lower()
    return origin.partition("://")[2].lower() != host or not _is_own_name(host)


def _is_own_name(host: str) -> bool:
    """An address, or what this machine calls itself."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return name == socket.gethostname().lower()
    return True
