"""The other end of a connection, as logs name it."""

from __future__ import annotations

import asyncio


def peer_address(transport: asyncio.BaseTransport | None) -> str:
    """Its address without the port; "-" where it is not known."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if isinstance(name, tuple) and name else "-"
