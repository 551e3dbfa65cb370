"""Who takes the responses of an answer: a request's sender, or a share of it where its texts are answered apart."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL


class AnswerSender(Protocol):
    """What answers need of a sender."""

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Sends a response, an end, or both."""

    def has_credit(self) -> bool:
        """Whether the client takes another response by now."""

    def measured(self, durations: Mapping[str, tuple[int, int]]) -> None:
        """Hands on what was measured."""


class SharedSender:
    """One sender for several answers: the request ends with the last of them; may be used from any thread.

    `lock` is held by an answer that looks for credit until it has used it, so that no other does in between.
    """

    def __init__(self, sender: AnswerSender, answers: int) -> None:
        self._sender = sender
        self._open_answers = answers
        self.lock = threading.RLock()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """The same, where an end is one of this answer alone."""
        with self.lock:
            if flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL:
                self._open_answers -= 1
                if self._open_answers:
                    flags &= ~TRITONSERVER_RESPONSE_COMPLETE_FINAL
            if response is not None or flags:
                self._sender.send(response, flags)

    def has_credit(self) -> bool:
        """Of the client, whichever answer is next."""
        return self._sender.has_credit()

    def measured(self, durations: Mapping[str, tuple[int, int]]) -> None:
        """Hands on what was measured."""
        self._sender.measured(durations)
