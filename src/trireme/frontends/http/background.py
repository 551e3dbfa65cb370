"""Answers that take more than a turn of the event loop: tasks that are kept alive and always end in an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trireme.core.errors import InternalError, ServingError
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.long_work import create_threads

log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundAnswers:
    """Runs the coroutines that answer exchanges; a client that leaves does not stop them."""

    __slots__ = ("_tasks", "_threads")

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = create_threads("http")

    def run(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Starts the work; an error it raises becomes the answer."""
        task = asyncio.get_running_loop().create_task(_answered(exchange, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        """Long work beside the event loop, a few pieces of it at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


async def _answered(exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
    endpoint = exchange.head.endpoint
    send_error = exchange.send_plain_error if endpoint is not None and endpoint.is_plain else exchange.send_error
    try:
        await work
    except ServingError as error:
        send_error(error)
    except Exception:
        log.exception("failed to answer %s %s", exchange.head.method, exchange.head.path)
        send_error(InternalError("the server failed to answer the request"))
