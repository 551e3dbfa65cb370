"""TLS handshakes: clients that do not go on with theirs are not waited for, the sooner the more of them there are."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

MANY: Final = 64
_LONG_S: Final = 10.0
_SHORT_S: Final = 1.0
"""Where more than `MANY` are under way: until it has said who it is, a client holds a descriptor for nothing."""


class Handshakes:
    """Those of one listener; used on the event loop's thread."""

    def __init__(self) -> None:
        self._under_way: dict[asyncio.Timeout, float] = {}
        """By what ends them: when they have begun."""

    async def connect(
        self, protocol: asyncio.BaseProtocol, client: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """Makes the client's transport, behind a handshake where there is a context. Raises OSError where that fails
        or takes too long."""
        loop = asyncio.get_running_loop()
        if context is None:
            await loop.connect_accepted_socket(lambda: protocol, client)
            return
        if len(self._under_way) == MANY:
            self._hurry()
        async with asyncio.timeout(_LONG_S if len(self._under_way) < MANY else _SHORT_S) as limit:
            self._under_way[limit] = loop.time()
            try:
                await loop.connect_accepted_socket(lambda: protocol, client, ssl=context)
            finally:
                del self._under_way[limit]

    def _hurry(self) -> None:
        for limit, begun in self._under_way.items():
            end = limit.when()
            if end is not None and end > begun + _SHORT_S:
                limit.reschedule(begun + _SHORT_S)
