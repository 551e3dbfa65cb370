"""The socket between two processes: how much waits there at most."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from trireme.frontends.processes import messages
from trireme.frontends.processes.process_link import ProcessLink

PIECE_BYTES: Final = 64 << 10
MOST_BYTES: Final = 4 << 20
"""What another client's request may find in front of it."""


def test_a_line_is_full_before_what_waits_in_it_holds_others_up() -> None:
    async def scenario() -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            link = ProcessLink(asyncio.get_running_loop(), ours, lambda _: None, lambda: None)
            sent = 0
            while not link.is_full:
                link.send_bytes(messages.READ, 1, bytes(PIECE_BYTES))
                sent += PIECE_BYTES
            link.close()
        return sent

    assert asyncio.run(scenario()) < MOST_BYTES
