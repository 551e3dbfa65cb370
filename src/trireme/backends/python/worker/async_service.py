"""Serving a model whose execute is a coroutine function: every batch is a task, so batches overlap."""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils.errors import exception_text
from trireme.backends.python.worker.link import Link
from trireme.backends.python.worker.trace_context import enter_trace
from trireme.backends.python.worker.worker import Worker


class AsyncService:
    """The main thread's event loop; it reads the link and runs batches until the model is finalized."""

    def __init__(self, worker: Worker, link: Link) -> None:
        self._worker = worker
        self._link = link
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_reading = False
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Returns once FINALIZE has been handled."""
        loop, link = self._loop, self._link
        asyncio.set_event_loop(loop)
        link.home_loop = loop
        link.on_pending = self._wake
        loop.add_reader(link.fileno(), self._on_readable)
        loop.call_soon(self._take_pending)
        try:
            loop.run_forever()
            if self._failure is not None:
                raise self._failure
            self._worker.use_loop(loop.run_until_complete)
            self._worker.handle((messages.FINALIZE,))
            self._cancel_rest()
        finally:
            link.home_loop = None
            link.on_pending = None
            asyncio.set_event_loop(None)
            loop.close()

    def _cancel_rest(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))

    def _on_readable(self) -> None:
        self._is_reading = True
        try:
            self._link.poll()
        except ConnectionResetError as error:
            self._failure = error
            self._loop.stop()
        finally:
            self._is_reading = False
        self._take_pending()

    def _wake(self) -> None:
        """Something came while another thread, or a blocking call inside a coroutine, was reading."""
        if not self._is_reading:
            self._loop.call_soon_threadsafe(self._take_pending)

    def _take_pending(self) -> None:
        while (message := self._link.take()) is not None:
            kind = message[0]
            if kind == messages.EXECUTE:
                self._start(self._execute(message[1], message[2]))
            elif kind == messages.CHECK_READY:
                self._start(self._check_ready(message[1]))
            elif kind == messages.FINALIZE:
                self._loop.stop()
            else:
                self._worker.handle(message)

    def _start(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, batch: int, forms: list[tuple[Any, ...]]) -> None:
        await execute(self._worker, batch, forms)

    async def _check_ready(self, token: int) -> None:
        worker = self._worker
        try:
            answer = worker.model.is_ready()
            if hasattr(answer, "__await__"):
                answer = await answer
        except BaseException as error:
            worker.channel.send((messages.READINESS, token, False, exception_text(error)))
        else:
            worker.answer_readiness(token, answer)


async def execute(worker: Worker, batch: int, forms: list[tuple[Any, ...]]) -> None:
    """Awaits the model's execute on a batch and sends its results."""
    start_ns = monotonic_ns()
    requests = worker.decode_batch(forms)
    begin_ns = monotonic_ns()
    result = failure = None
    try:
        if forms[0][8] is not None:
            enter_trace(forms[0][8])  # for this task alone, so that nothing has to end it
        result = await worker.model.execute(requests)
    except BaseException as error:
        failure = worker.describe(error)
    message = worker.settle(batch, requests, result, failure, (start_ns, begin_ns))
    del requests, result
    worker.channel.send(message)
