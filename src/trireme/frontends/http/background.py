"""Answers that take more than a turn of the event loop: they are kept alive and always end in an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from trireme.access.actor import acting
from trireme.core.errors import ServingError
from trireme.core.threads.pools import create_threads
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.inflating import Inflation, InflationShare
from trireme.frontends.refusals import is_refusal
from trireme.protocol.inflating import Compressed
from trireme.protocol.json_codec.text import reading_bytes
from trireme.server.long_work import OrderedWork, ReadingMemory

T = TypeVar("T")
SendError = Callable[[ServingError], None]


class BackgroundAnswers:
    """Runs what answers exchanges later; a client that leaves does not stop it."""

    __slots__ = ("_native_threads", "_picture_threads", "_python_threads", "_reading", "_tasks", "inflation")

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._python_threads = create_threads("http")
        self._native_threads = create_threads("http-compression", is_native=True)
        self._picture_threads = create_threads("http-pictures")
        self._reading = ReadingMemory()
        self.inflation = Inflation("http")

    @property
    def waiting_for_memory(self) -> int:
        """How many threads could read a text and wait for memory."""
        return self._reading.waiting

    def run(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Starts the work; an error it raises becomes the answer."""
        task = asyncio.get_running_loop().create_task(_answered(exchange, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def ordered_work(self, exchange: Exchange, send_error: SendError | None = None) -> OrderedWork:
        """For long work in Python; an error becomes the answer, in the endpoint's form unless said otherwise."""
        return _work_of(exchange, self._python_threads, partial(_fail_work, exchange, send_error))

    def read(
        self,
        exchange: Exchange,
        text: bytes,
        decode: Callable[[], T],
        then: Callable[[T], None],
        send_error: SendError | None = None,
    ) -> None:
        """Reads a long text of JSON, when there is memory for its values, and goes on with the result."""

        def read() -> T:
            return self._reading.run(reading_bytes(text), decode)

        self.ordered_work(exchange, send_error).compute(read, then)

    def inflate(self, exchange: Exchange, body: Compressed, then: Callable[[bytes], None]) -> None:
        """Inflates a body, when there is memory for what it becomes, and goes on with that."""
        share = exchange.share = InflationShare()
        self.inflation.compute(self.compression_work(exchange), body, share, then)

    def compression_work(self, exchange: Exchange) -> OrderedWork:
        """The same for compressing."""
        return _work_of(exchange, self._native_threads, partial(_fail_work, exchange, None))

    def picture_work(self, exchange: Exchange, send_error: SendError) -> OrderedWork:
        """The same for waiting until pictures are decoded."""
        return _work_of(exchange, self._picture_threads, partial(_fail, exchange, send_error))


def _work_of(exchange: Exchange, threads: ThreadPoolExecutor, fail: Callable[[Exception], None]) -> OrderedWork:
    """Work that ends with its exchange."""
    work = exchange.work = OrderedWork(asyncio.get_running_loop(), threads, fail)
    return work


async def _answered(exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
    try:
        if exchange.tracked is None:
            await work
        else:
            with acting(exchange.tracked.actor):
                await work
    except Exception as error:
        _fail(exchange, None, error)


def _fail_work(exchange: Exchange, send_error: SendError | None, error: Exception) -> None:
    is_unread = exchange.request is None
    _fail(exchange, send_error, error)
    if is_unread and is_refusal(error):
        exchange.connection.note_refused()


def _fail(exchange: Exchange, send_error: SendError | None, error: Exception) -> None:
    endpoint = exchange.head.endpoint
    is_plain = endpoint is not None and endpoint.is_plain
    send_usual = exchange.send_plain_error if is_plain else exchange.send_error
    if isinstance(error, ServingError):
        (send_error or send_usual)(error)
    else:
        exchange.fail(error)
