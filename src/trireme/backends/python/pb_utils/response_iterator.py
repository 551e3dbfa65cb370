"""A model's call to another model while its responses come, and the iterator over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.channel import Channel
from trireme.backends.python.pb_utils.response import InferenceResponse

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class Waiter:
    """A future and the loop in whose thread it must be resolved."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: AbstractEventLoop, future: Future[Any]) -> None:
        self.loop = loop
        self.future = future


class BlsCall:
    """One request to another model, with the responses that have come so far."""

    __slots__ = ("_is_decoupled", "_waiter", "is_done", "number", "responses", "stream_waiter")

    def __init__(self, number: int, is_decoupled: bool, waiter: Waiter | None) -> None:
        self.number = number
        self.responses: list[InferenceResponse] = []
        self.is_done = False
        self.stream_waiter: Waiter | None = None
        self._is_decoupled = is_decoupled
        self._waiter = waiter

    def deliver(self, response: InferenceResponse | None, is_final: bool, channel: Channel) -> None:
        """Takes a response; the mark alone, at the end of a stream, is an empty one, as Triton gives it."""
        if response is not None or self._is_decoupled or not self.responses:
            self.responses.append(response if response is not None else InferenceResponse([]))
        if is_final:
            self.is_done = True
        self._announce(self._waiter, self.is_done or self._is_decoupled, channel)
        self._announce(self.stream_waiter, True, channel)

    def _announce(self, waiter: Waiter | None, is_enough: bool, channel: Channel) -> None:
        """Resolves a waiting future, in its own thread."""
        if waiter is None or not is_enough or waiter.future.done():
            return
        from asyncio import _get_running_loop

        if _get_running_loop() is waiter.loop:
            self._resolve(waiter, channel)
        elif not waiter.loop.is_closed():
            waiter.loop.call_soon_threadsafe(self._resolve, waiter, channel)

    def _resolve(self, waiter: Waiter, channel: Channel) -> None:
        if not waiter.future.done():
            waiter.future.set_result(ResponseIterator(self, channel) if self._is_decoupled else self.responses[0])


class ResponseIterator:
    """The responses of a decoupled call, as they come. Who begins to iterate goes on where `next` has come to; after
    the last one, at the first."""

    def __init__(self, call: BlsCall, channel: Channel) -> None:
        self._call = call
        self._channel = channel
        self._position = 0

    def __iter__(self) -> Iterator[InferenceResponse]:
        self._begin_again_at_end()
        return self

    def __next__(self) -> InferenceResponse:
        call, position = self._call, self._position
        self._channel.wait_until(lambda: len(call.responses) > position or call.is_done)
        if position == len(call.responses):
            raise StopIteration("Iteration is done for the responses.")
        self._position = position + 1
        return call.responses[position]

    def __aiter__(self) -> ResponseIterator:
        self._begin_again_at_end()
        return self

    async def __anext__(self) -> InferenceResponse:
        """Waits for the next response without blocking the loop."""
        import asyncio

        call, position = self._call, self._position
        if len(call.responses) == position and not call.is_done:
            loop = asyncio.get_running_loop()
            call.stream_waiter = Waiter(loop, loop.create_future())
            self._channel.watch(loop)
            try:
                if len(call.responses) == position and not call.is_done:
                    await call.stream_waiter.future
            finally:
                call.stream_waiter = None
                self._channel.unwatch(loop)
        if position == len(call.responses):
            raise StopAsyncIteration
        self._position = position + 1
        return call.responses[position]

    def _begin_again_at_end(self) -> None:
        if self._call.is_done and self._position == len(self._call.responses):
            self._position = 0

    def cancel(self) -> None:
        """Tells the called model that nobody waits any more; its remaining responses still end the iteration."""
        if not self._call.is_done:
            self._channel.send((messages.CALL_CANCEL, self._call.number))
