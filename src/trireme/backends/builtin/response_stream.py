"""The responses of one request of a decoupled model, each sent when its time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from trireme.backends.builtin.delayed import cancelled
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse

_RESPONSES_PER_TURN = 64
"""So many without a delay between them go out before other requests have their turn."""

Step = tuple[float, InferenceResponse | None]
"""Seconds to wait, then what to send; None sends nothing."""


class ResponseStream:
    """Sends the steps one after the other and a final mark behind them."""

    __slots__ = ("_next", "_on_end", "_runner", "_steps", "_timer", "request")

    def __init__(
        self,
        request: InferenceRequest,
        steps: Iterator[Step],
        runner: BatchRunner,
        on_end: Callable[[ResponseStream], None],
    ) -> None:
        self.request = request
        self._steps = steps
        self._runner = runner
        self._on_end = on_end
        self._next: InferenceResponse | None = None
        self._timer: asyncio.Handle | None = None

    def begin(self) -> None:
        """Starts with the next turn of the event loop, so that the batch can be finished first."""
        self._timer = asyncio.get_running_loop().call_soon(self._advance)

    def cancel(self) -> None:
        """Nobody waits any longer: ends at once."""
        self._end(cancelled())

    def _advance(self) -> None:
        """Sends what is due."""
        for _ in range(_RESPONSES_PER_TURN):
            response, self._next = self._next, None
            if response is not None:
                self._runner.respond(self.request, response)
                if self._timer is None:  # ended by whoever took the response
                    return
            step = next(self._steps, None)
            if step is None:
                self._end(InferenceResponse.final_mark())
                return
            delay_s, self._next = step
            if delay_s:
                self._timer = asyncio.get_running_loop().call_later(delay_s, self._advance)
                return
        self._timer = asyncio.get_running_loop().call_soon(self._advance)

    def _end(self, last: InferenceResponse) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_end(self)
        self._runner.respond(self.request, last)


class Streams:
    """Those that an instance has open."""

    def __init__(self, runner: BatchRunner) -> None:
        self._runner = runner
        self._open: dict[InferenceRequest, ResponseStream] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, request: InferenceRequest, steps: Iterator[Step]) -> None:
        """Opens one."""
        stream = self._open[request] = ResponseStream(request, steps, self._runner, self._close)
        stream.begin()

    def cancel(self, request: InferenceRequest) -> None:
        """Ends the request's, where it has one."""
        stream = self._open.get(request)
        if stream is not None:
            stream.cancel()

    def _close(self, stream: ResponseStream) -> None:
        self._open.pop(stream.request, None)
