"""The loop of a front-end process, with this test in the server's place."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from trireme.app.front_ends import _front_plan
from trireme.config.options.server import ServerOptions
from trireme.frontends.processes import messages
from trireme.frontends.processes.front_loop import FrontLoop


class Call:
    """Keeps how it ends."""

    connection_number = 1

    def __init__(self) -> None:
        self.ends: list[int] = []

    def settle(self, kind: int, message: tuple[Any, ...]) -> None:
        self.ends.append(kind)


def test_a_request_that_no_message_can_carry_goes_on_as_it_came() -> None:
    async def run() -> None:
        plan = _front_plan(ServerOptions(), asyncio.new_event_loop, (700, 10, 10))
        sock, their_sock = socket.socketpair()
        side, their_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with side, their_side, their_sock:
            loop = FrontLoop(plan, sock, side)
            strange, plain = Call(), Call()
            loop.calls = {1: strange, 2: plain}
            loop.line.send((messages.INFER, 1, object()))
            loop.line.send((messages.INFER, 2))
            loop.line.flush()
            assert strange.ends == [messages.SEND_WHOLE]
            assert list(loop.calls.values()) == [plain]
            assert plain.ends == []
            loop.close()
            loop.line.close()

    asyncio.run(run())
