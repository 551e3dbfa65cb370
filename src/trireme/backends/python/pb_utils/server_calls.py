"""What a model asks of the server and waits for: calls to other models, model control, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.response import InferenceResponse, decode_response
from trireme.backends.python.pb_utils.tensor import encode_tensor

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    from trireme.backends.python.pb_utils.request import InferenceRequest

_OUTSIDE = "BLS is only supported during the 'execute' function."
_PENDING = object()


class Errands:
    """Numbers questions, sends them and brings answers to those who wait. Used from any thread."""

    def __init__(self, channel: pb_runtime.Channel) -> None:
        self._channel = channel
        self._numbers = count(1)
        self._answers: dict[int, tuple[Any, Any] | object] = {}
        self._calls: dict[int, Call] = {}

    def ask(self, kind: int, operation: str, arguments: tuple[Any, ...]) -> Any:
        """Sends CONTROL or METRIC and waits for the value; raises TritonModelException with the server's message."""
        token = next(self._numbers)
        answers = self._answers
        answers[token] = _PENDING
        try:
            self._channel.send((kind, token, operation, arguments))
            self._channel.wait_until(lambda: answers[token] is not _PENDING)
        finally:
            answer: Any = answers.pop(token)
        value, error = answer
        if error is not None:
            raise TritonModelException(error[1])
        return value

    def execute(self, request: InferenceRequest, is_decoupled: bool) -> InferenceResponse | ResponseIterator:
        """`InferenceRequest.exec`."""
        call = self._start(request, is_decoupled, None)
        if is_decoupled:
            self._channel.wait_until(lambda: call.responses)
            return ResponseIterator(call, self._channel)
        self._channel.wait_until(lambda: call.is_done)
        return call.responses[0]

    def execute_async(
        self, request: InferenceRequest, is_decoupled: bool
    ) -> Awaitable[InferenceResponse | ResponseIterator]:
        """`InferenceRequest.async_exec`: the future is resolved by whoever reads the answer."""
        import asyncio

        loop = asyncio.get_running_loop()
        channel = self._channel
        future: Future[Any] = loop.create_future()
        call = self._start(request, is_decoupled, _Waiter(loop, future))
        channel.watch(loop)

        def end(future: Future[Any]) -> None:
            channel.unwatch(loop)
            if future.cancelled() and not call.is_done:
                channel.send((messages.CALL_CANCEL, call.number))

        future.add_done_callback(end)
        return future

    def on_result(self, message: tuple[Any, ...]) -> None:
        """CONTROL_RESULT: (kind, token, value, error)."""
        if message[1] in self._answers:
            self._answers[message[1]] = (message[2], message[3])

    def on_call_response(self, message: tuple[Any, ...]) -> None:
        """CALL_RESPONSE: (kind, call, response or None, is_final)."""
        _, number, answer, is_final = message
        call = self._calls.get(number)
        response = None if answer is None else decode_response(answer, self._channel.attachments)
        if call is None:
            return
        if is_final:
            del self._calls[number]
        call.deliver(response, is_final, self._channel)

    def _start(self, request: InferenceRequest, is_decoupled: bool, waiter: _Waiter | None) -> Call:
        if pb_runtime.current().phase != pb_runtime.SERVING:
            raise TritonModelException(_OUTSIDE)
        channel = self._channel
        number = next(self._numbers)
        call = self._calls[number] = Call(number, is_decoupled, waiter)
        key, request_id, _, names, correlation_id, _, timeout, parameters, trace = request._message
        tensors = [encode_tensor(tensor, channel.arena) for tensor in request._inputs]
        body = (
            key or pb_runtime.parent_key.get(),
            request_id,
            tensors,
            names,
            correlation_id,
            request.flags(),
            timeout,
            parameters,
            trace,
        )
        name, version = request._model
        channel.send((messages.CALL, number, name, version, body, is_decoupled))
        return call


class _Waiter:
    """A future and the loop in whose thread it must be resolved."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: AbstractEventLoop, future: Future[Any]) -> None:
        self.loop = loop
        self.future = future


class Call:
    """One request to another model, with the responses that have come so far."""

    __slots__ = ("_is_decoupled", "_waiter", "is_done", "number", "responses", "stream_waiter")

    def __init__(self, number: int, is_decoupled: bool, waiter: _Waiter | None) -> None:
        self.number = number
        self.responses: list[InferenceResponse] = []
        self.is_done = False
        self.stream_waiter: _Waiter | None = None
        self._is_decoupled = is_decoupled
        self._waiter = waiter

    def deliver(self, response: InferenceResponse | None, is_final: bool, channel: pb_runtime.Channel) -> None:
        """Takes a response; the mark alone, at the end of a stream, is an empty one, as Triton gives it."""
        if response is not None or self._is_decoupled or not self.responses:
            self.responses.append(response if response is not None else InferenceResponse([]))
        if is_final:
            self.is_done = True
        self._announce(self._waiter, self.is_done or self._is_decoupled, channel)
        self._announce(self.stream_waiter, True, channel)

    def _announce(self, waiter: _Waiter | None, is_enough: bool, channel: pb_runtime.Channel) -> None:
        """Resolves a waiting future, in its own thread."""
        if waiter is None or not is_enough or waiter.future.done():
            return
        from asyncio import _get_running_loop

        if _get_running_loop() is waiter.loop:
            self._resolve(waiter, channel)
        elif not waiter.loop.is_closed():
            waiter.loop.call_soon_threadsafe(self._resolve, waiter, channel)

    def _resolve(self, waiter: _Waiter, channel: pb_runtime.Channel) -> None:
        if not waiter.future.done():
            waiter.future.set_result(ResponseIterator(self, channel) if self._is_decoupled else self.responses[0])


class ResponseIterator:
    """The responses of a decoupled call, as they come; iterating again begins at the first."""

    def __init__(self, call: Call, channel: pb_runtime.Channel) -> None:
        self._call = call
        self._channel = channel
        self._position = 0

    def __iter__(self) -> Iterator[InferenceResponse]:
        self._position = 0
        return self

    def __next__(self) -> InferenceResponse:
        call, position = self._call, self._position
        self._channel.wait_until(lambda: len(call.responses) > position or call.is_done)
        if position == len(call.responses):
            raise StopIteration("Iteration is done for the responses.")
        self._position = position + 1
        return call.responses[position]

    def __aiter__(self) -> ResponseIterator:
        self._position = 0
        return self

    async def __anext__(self) -> InferenceResponse:
        """Waits for the next response without blocking the loop."""
        import asyncio

        call, position = self._call, self._position
        if len(call.responses) == position and not call.is_done:
            loop = asyncio.get_running_loop()
            call.stream_waiter = _Waiter(loop, loop.create_future())
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

    def cancel(self) -> None:
        """Tells the called model that nobody waits any more; its remaining responses still end the iteration."""
        if not self._call.is_done:
            self._channel.send((messages.CALL_CANCEL, self._call.number))
