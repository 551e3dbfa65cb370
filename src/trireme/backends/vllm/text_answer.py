"""What a client gets: a response per piece of text, or one with everything."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trireme.backends.python.pb_utils.errors import ErrorCode, TritonError
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL
from trireme.backends.served_engine.returned import number_tensors
from trireme.backends.served_engine.slow_streams import SlowStreams
from trireme.backends.vllm.text_request import TextRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What is new of one of a request's answers."""

    index: int
    text: str
    token_count: int = 0
    logprob: float = 0.0
    """The sum over the new tokens."""
    logprobs: list[dict[int, dict[str, Any]]] | None = None
    """For each new token, by ids; None where none were asked for."""
    finish_reason: str | None = None


@dataclass(slots=True)
class _Choice:
    """One answer, since the last response."""

    text: str = ""
    token_count: int = 0
    logprob: float = 0.0
    """Since the beginning."""
    logprobs: list[dict[int, dict[str, Any]]] | None = None
    finish_reason: str | None = None

    def add(self, delta: ChoiceDelta) -> None:
        self.text += delta.text
        self.token_count += delta.token_count
        self.logprob += delta.logprob
        if delta.logprobs is not None:
            self.logprobs = (self.logprobs or []) + delta.logprobs
        self.finish_reason = delta.finish_reason

    def begin_again(self) -> None:
        self.text, self.token_count = "", 0
        self.logprobs = None if self.logprobs is None else []


@dataclass(slots=True, eq=False)
class TextAnswer:
    """Takes deltas from one thread; where the client takes its time, they are joined until it goes on."""

    request: TextRequest
    sender: InferenceResponseSender
    slow_streams: SlowStreams
    cancel: Callable[[], None]
    """Ends what is under way."""
    input_count: int = 0
    is_closed: bool = False
    _choices: list[_Choice] = field(default_factory=list)
    _is_over: bool = False
    _is_held: bool = False
    _has_deltas: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, choice_count: int, input_count: int) -> None:
        """Before the first output."""
        self._choices = [_Choice() for _ in range(choice_count)]
        self.input_count = input_count

    def take(self, deltas: Sequence[ChoiceDelta], is_over: bool) -> None:
        """Never raises, so that the request is always answered."""
        with self._lock:
            if self.is_closed:
                return
            for one in deltas:
                self._choices[one.index].add(one)
                self._has_deltas = True
            self._is_over = is_over
            if self._is_held or self._try_to_flush():
                return
            self._is_held = True
        self.slow_streams.add(self)

    def fail(self, text: str, code: ErrorCode) -> None:
        """Tells the client, once."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        try:
            self.sender.send(InferenceResponse(error=TritonError(text, code)), FINAL)
        except Exception:  # the client has its answer already, or the server is gone
            log.debug("the error '%s' reaches nobody", text, exc_info=True)
        self.cancel()

    def can_go_on(self) -> bool:
        """Whether what is held may be sent by now."""
        return self.is_closed or self.sender.has_credit()

    def release(self) -> bool:
        """Sends what is held, as one piece."""
        with self._lock:
            self._is_held = not self._try_to_flush()
            return not self._is_held

    def _try_to_flush(self) -> bool:
        try:
            return self._flush()
        except Exception as error:
            log.exception("an answer cannot be written")
            self.fail(f"the answer cannot be written: {error}", ErrorCode.INTERNAL)
            return True

    def _flush(self) -> bool:
        """False where the client has to take something before more may follow."""
        if self.is_closed or not (self._is_over or (self.request.is_stream and self._has_deltas)):
            return True
        if not self.sender.has_credit():
            return False
        self.sender.send(self._response(), FINAL if self._is_over else 0)
        self.is_closed = self._is_over
        self._has_deltas = False
        for choice in self._choices:
            choice.begin_again()
        return True

    def _response(self) -> InferenceResponse:
        wanted, choices = self.request, self._choices
        prompt = wanted.prompt if wanted.has_prompt else ""
        tensors = [_texts("text_output", [prompt + choice.text for choice in choices])]
        if "finish_reason" in wanted.told:
            tensors.append(_texts("finish_reason", [str(choice.finish_reason) for choice in choices]))
        if "logprobs" in wanted.told:
            tensors.append(_texts("logprobs", [json.dumps(choice.logprobs) for choice in choices]))
        counts, sums = [one.token_count for one in choices], [one.logprob for one in choices]
        tensors += number_tensors(wanted.told, self.input_count, counts, sums)
        return InferenceResponse(tensors)


def _texts(name: str, texts: Sequence[str]) -> Tensor:
    array = np.empty(len(texts), np.object_)
    array[:] = [text.encode(errors="replace") for text in texts]  # half a pair of surrogates is no UTF-8
    return Tensor(name, array)
