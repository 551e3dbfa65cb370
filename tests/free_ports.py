"""Ports for servers that tests start, which nobody else is given in the meantime."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from functools import cache

_FIRST, _LAST = 10_000, 32_000  # below what the system gives to outgoing connections


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now, and that no other call of this test run returns."""
    candidates = _candidates()
    ports: list[int] = []
    while len(ports) < count:
        port = next(candidates)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:  # somebody else's
                continue
        ports.append(port)
    return ports


@cache
def _candidates() -> Iterator[int]:
    """This process's share of the ports, in a random order, so that several test runs seldom meet."""
    processes = int(os.environ.get("TEST_PROCESS_COUNT", "1"))
    own = int(os.environ.get("TEST_PROCESS", "0"))
    share = list(range(_FIRST + own, _LAST, processes))
    random.SystemRandom().shuffle(share)
    return iter(share)
