"""What goes on in threads beside a block of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)

_POLL_S = 0.02


@contextmanager
def meanwhile(*works: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Each of them in a thread of its own. The event tells them that the block is over, and they are waited for; what
    one of them raises is raised behind the block."""
    is_over = threading.Event()
    errors: list[BaseException] = []

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(is_over)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(is_over.set)
        yield is_over
    for error in errors:
        raise error


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server answers meanwhile, and is closed behind the block."""

    def serve(is_over: threading.Event) -> None:
        server.serve_forever(_POLL_S)

    with server, meanwhile(serve):
        try:
            yield server
        finally:
            server.shutdown()
