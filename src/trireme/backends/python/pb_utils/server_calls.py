"""What a model asks of the server and waits for: calls to other models, model control, metrics."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import count
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.channel import Channel
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.response import InferenceResponse, decode_response
from trireme.backends.python.pb_utils.response_iterator import BlsCall, ResponseIterator, Waiter
from trireme.backends.python.pb_utils.runtime import CallRequest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

_PENDING = object()


class ServerCalls:
    """Numbers questions, sends them and brings answers to those who wait. Used from any thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = count(1)
        self._answers: dict[int, tuple[Any, Any] | object] = {}
        self._calls: dict[int, BlsCall] = {}

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

    def execute(self, request: CallRequest, is_decoupled: bool) -> InferenceResponse | ResponseIterator:
        """`InferenceRequest.exec`."""
        call = self._start(request, is_decoupled, None)
        if is_decoupled:
            self._channel.wait_until(lambda: call.responses)
            return ResponseIterator(call, self._channel)
        self._channel.wait_until(lambda: call.is_done)
        return call.responses[0]

    def execute_async(
        self, request: CallRequest, is_decoupled: bool, loop: AbstractEventLoop
    ) -> Awaitable[InferenceResponse | ResponseIterator]:
        """`InferenceRequest.async_exec`: the future is resolved by whoever reads the answer."""
        channel = self._channel
        future: Future[Any] = loop.create_future()
        call = self._start(request, is_decoupled, Waiter(loop, future))
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
        response = None if answer is None else decode_response(answer, self._channel.server_attachments)
        if call is None:
            return
        if is_final:
            del self._calls[number]
        call.deliver(response, is_final, self._channel)

    def _start(self, request: CallRequest, is_decoupled: bool, waiter: Waiter | None) -> BlsCall:
        start_ns = monotonic_ns()
        number = next(self._numbers)
        call = self._calls[number] = BlsCall(number, is_decoupled, waiter)
        name, version, body = request
        self._channel.send((messages.CALL, number, name, version, body, is_decoupled, start_ns))
        return call
