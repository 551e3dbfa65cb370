"""`InferenceResponseSender`: responses of a request ahead of, or instead of, what execute returns."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils.errors import ErrorCode, TritonModelException
from trireme.backends.python.pb_utils.response import InferenceResponse, encode_response
from trireme.backends.python.pb_utils.runtime import Runtime
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL

_CANNOT = "Unable to send response. "
_DISCARDED = "the model's execute gave no response for this request and kept no response sender to give one later"

_RETURNS = ": does it end with 'return responses'?"


class InferenceResponseSender:
    """May be used from any thread and after execute has returned, until a response carries the final flag."""

    __slots__ = ("__weakref__", "_key", "_lock", "_runtime", "_sent_count", "_wanted", "is_closed")

    def __init__(self, runtime: Runtime, key: int, wanted: Collection[str]) -> None:
        self._runtime = runtime
        self._key = key
        self._wanted = wanted
        self._sent_count = 0
        self._lock = threading.Lock()
        self.is_closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Sends a response, the final flag, or both."""
        self._check_arguments(response, flags)
        runtime = self._runtime
        with self._lock:
            self._check_state(response)
            if response is not None and self._key in runtime.credits:
                self._wait_for_credit()
            encoded = None
            if response is not None:
                encoded = encode_response(response, runtime.channel.arena, self._wanted)
                self._sent_count += 1
            is_final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
            if is_final:
                self.is_closed = True
                self._forget()
            runtime.channel.send((messages.RESPONSE, self._key, encoded, is_final))

    def measured(self, durations: Mapping[str, tuple[int, int]]) -> None:
        """Tells the server what was measured of the request, by name: how often, and nanoseconds altogether. Nothing
        is told of one that has its final response."""
        if not self.is_closed:
            self._runtime.channel.send((messages.MEASURED, self._key, dict(durations)))

    def has_credit(self) -> bool:
        """Whether a response can be sent without waiting for whoever takes them, as far as is known by now."""
        credit = self._runtime.credits.get(self._key)
        return credit is None or credit > self._sent_count or self._key in self._runtime.cancelled

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more; the final flag must be sent all the same."""
        self._runtime.channel.poll()
        return self._key in self._runtime.cancelled

    def abandon(self) -> None:
        """The batch failed and was answered as a whole: nothing is sent from now on."""
        self.is_closed = True
        self._forget()

    def _wait_for_credit(self) -> None:
        """Blocks while whoever takes the responses has enough of them; one that nobody wants need not wait."""
        key, credits, cancelled = self._key, self._runtime.credits, self._runtime.cancelled
        self._runtime.channel.wait_until(lambda: credits[key] > self._sent_count or key in cancelled)

    def _forget(self) -> None:
        self._runtime.cancelled.discard(self._key)
        self._runtime.credits.pop(self._key, None)

    def _check_arguments(self, response: InferenceResponse | None, flags: int) -> None:
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send: response must be an InferenceResponse, found {type(response).__name__}")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(_CANNOT + "Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )

    def _check_state(self, response: InferenceResponse | None) -> None:
        if not self._runtime.is_decoupled:
            if response is not None and self._sent_count:
                raise TritonModelException(_CANNOT + "Non-decoupled model cannot send more than one response.")
            if response is None and not self._sent_count:
                raise TritonModelException(
                    _CANNOT + "Non-decoupled model cannot send complete final before sending a response."
                )
        if self.is_closed:
            raise TritonModelException(_CANNOT + "Response sender has been closed.")

    def __del__(self) -> None:
        """A request is always answered: where the final flag can no longer come from the model, it is sent here."""
        if self.is_closed:
            return
        self._forget()
        text = _DISCARDED if self._runtime.is_decoupled else _DISCARDED + _RETURNS
        answer = None if self._sent_count else ((), (int(ErrorCode.INTERNAL), text), None)
        self._runtime.channel.post((messages.RESPONSE, self._key, answer, True))
