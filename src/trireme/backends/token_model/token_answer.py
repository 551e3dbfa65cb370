"""What becomes of a request's prompts, gathered row by row and sent as tensors: once, or at every step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.backends.python.pb_utils.errors import ErrorCode, TritonError
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.refusals import end_code
from trireme.backends.served_engine.slow_streams import SlowStreams
from trireme.backends.token_model.answer_sender import AnswerSender, SharedSender
from trireme.backends.token_model.family import Family
from trireme.backends.token_model.token_request import Row, TokenRequest
from trireme.backends.token_model.word_lists import ends_with_any
from trireme.llm.request import FinishReason, SequenceOutput

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Lane:
    """One text that is written: a prompt's, or one of its beams."""

    row: Row
    sequence_id: int = 0
    written: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_finished: bool = False


class TokenAnswer:
    """Takes outputs in one thread; `stop` and `cancel` may be called from any.

    Where the client takes its time, its tokens are kept and `slow_streams` goes on with them.
    """

    def __init__(
        self,
        request: TokenRequest,
        family: Family,
        types: Mapping[str, Any],
        sender: AnswerSender,
        end_sequence: Callable[[int, FinishReason], None],
        on_end: Callable[[], None],
        slow_streams: SlowStreams,
        *,
        is_stream: bool,
        has_prompt: bool,
    ) -> None:
        """`types` are those of the declared outputs; `on_end` is called once, when nothing more is sent."""
        self._request = request
        self._family = family
        self._types = types
        self._sender = sender
        self._end_sequence = end_sequence
        self._on_end = on_end
        self._slow_streams = slow_streams
        self._lock = sender.lock if isinstance(sender, SharedSender) else threading.RLock()
        self._is_held = False
        self._is_stream = is_stream
        self._has_prompt = has_prompt if request.has_prompt is None else request.has_prompt
        self._sent_steps = 0
        self._is_stopped = False
        self._after_stop: list[Callable[[], None]] = []
        self._is_closed = False
        self._has_begun = True
        self.lanes = [Lane(row) for row in request.rows for _ in range(request.beams)]

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_closed

    def lanes_by_row(self) -> list[list[Lane]]:
        """The texts of each prompt."""
        beams = self._request.beams
        return [self.lanes[first : first + beams] for first in range(0, len(self.lanes), beams)]

    def wait(self) -> None:
        """From now on it waits for `begin`."""
        self._has_begun = False

    def begin(self, submit: Callable[[], None]) -> bool:
        """Calls `submit`, which lets the engine begin; false where it was stopped or has failed while it waited."""
        with self._lock:
            if self._is_closed:
                return False
            self._has_begun = True
            submit()
            return True

    def cancel(self) -> None:
        """Ends what is under way."""
        with self._lock:
            is_waiting = not self._has_begun and not self._is_closed
        if is_waiting:
            reason = FinishReason.CANCELLED
            self.fail(RuntimeError(f"the request was ended: {reason.value}"), end_code(reason))
            return
        for lane in self.lanes:
            if not lane.is_finished:
                self._end_sequence(lane.sequence_id, FinishReason.CANCELLED)

    def stop(self, then: Callable[[], None]) -> None:
        """Ends what is under way, and what was written until then is the answer; of a stream nothing more but its end.

        `then` is called when that is sent.
        """
        with self._lock:
            if is_running := not self._is_closed:
                self._is_stopped = True
                self._after_stop.append(then)
                if not self._has_begun:
                    self._end_pending()
        if is_running:
            self.cancel()
        else:
            then()

    def _end_pending(self) -> None:
        for lane in self.lanes:
            lane.is_finished = True
        try:
            self._flush()
        except Exception as error:
            self._fail_to_write(error)

    def fail(self, error: Exception, code: ErrorCode) -> None:
        """Tells the client, once, and ends the rest."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._sender.send(InferenceResponse(error=TritonError(str(error), code)), _FINAL)
        except Exception:  # the client has its answer already, or the server is gone
            log.debug("the error '%s' reaches nobody", error, exc_info=True)
        self.cancel()
        self._end()

    def measured(self, durations: Mapping[str, tuple[int, int]]) -> None:
        """What the engine has measured of one of the texts."""
        self._sender.measured(durations)

    def take(self, lane: Lane, output: SequenceOutput) -> None:
        """Never raises, so that the request is always answered."""
        with self._lock:
            if lane.is_finished or self._is_closed:
                return
            try:
                self._take(lane, output)
            except Exception as error:
                self._fail_to_write(error)

    def can_go_on(self) -> bool:
        """Whether what is held may be sent by now, or nobody wants it any more."""
        return self._is_closed or self._is_stopped or self._sender.has_credit()

    def release(self) -> bool:
        """Sends what may be sent of what is held; whether nothing is left."""
        with self._lock:
            try:
                self._is_held = not self._flush()
            except Exception as error:
                self._is_held = False
                self._fail_to_write(error)
            return not self._is_held

    def _fail_to_write(self, error: Exception) -> None:
        log.exception("an answer cannot be written")
        self.fail(RuntimeError(f"the answer cannot be written: {error}"), ErrorCode.INTERNAL)

    def _take(self, lane: Lane, output: SequenceOutput) -> None:
        reason = output.finish_reason
        if reason in (FinishReason.CANCELLED, FinishReason.TIMEOUT, FinishReason.ERROR) and not self._is_stopped:
            lane.is_finished = True
            text = output.error or f"the request was ended: {reason.value}"
            self.fail(RuntimeError(text), end_code(reason))
            return
        for place, token in enumerate(output.token_ids):
            lane.written.append(token)
            if place < len(output.logprobs):
                lane.logprobs.append(output.logprobs[place].logprob)
            if len(lane.written) >= lane.row.params.min_tokens and ends_with_any(lane.written, lane.row.stop_words):
                if reason is None:
                    self._end_sequence(lane.sequence_id, FinishReason.STOP)
                reason = FinishReason.STOP
                break
        lane.is_finished = reason is not None
        if not self._is_held and not self._flush():
            self._is_held = True
            self._slow_streams.add(self)

    def _flush(self) -> bool:
        """Sends what there is; false where the client has to take something before more may follow."""
        if self._is_closed:
            return True
        is_over = all(lane.is_finished for lane in self.lanes)
        last = max(len(lane.written) for lane in self.lanes)
        if self._is_stream and not self._is_stopped and not self._flush_steps(last, is_over):
            return False
        if is_over:
            if not self._is_stream:
                self._sender.send(self._response(0, last), _FINAL)
            elif not self._is_closed:
                self._sender.send(flags=_FINAL)
            self._is_closed = True
            self._end()
        return True

    def _end(self) -> None:
        self._on_end()
        for then in self._after_stop:
            then()

    def _flush_steps(self, last: int, is_over: bool) -> bool:
        ready = min((len(lane.written) for lane in self.lanes if not lane.is_finished), default=last)
        for step in range(self._sent_steps + 1, ready + 1):
            if not self._sender.has_credit():
                return False
            self._sent_steps = step
            first = 0 if self._family.streams_whole else step - 1
            is_final = is_over and step == last
            self._sender.send(self._response(first, step), _FINAL if is_final else 0)
            self._is_closed = is_final
        return True

    def _response(self, first: int, end: int) -> InferenceResponse:
        """The tokens from one step to another, behind their prompts where these belong to it."""
        has_prompt = self._has_prompt and (not self._is_stream or self._family.streams_whole)
        texts = [(lane.row.tokens if has_prompt else []) + lane.written[first:end] for lane in self.lanes]
        width = max(map(len, texts))
        if self._family.fills_to_request and has_prompt:
            width = max(width, self._request.prompt_width + self._request.max_tokens)
        found: dict[str, npt.NDArray[Any]] = {
            "output_ids": np.array(
                [self._filled(lane, text, width) for lane, text in zip(self.lanes, texts, strict=True)]
            ),
            "sequence_length": np.array([len(text) for text in texts]),
            "response_input_lengths": np.array([len(lane.row.tokens) for lane in self.lanes]),
            **self._logprobs(first, end),
        }
        wanted = self._request.outputs
        tensors = [self._tensor(name, array) for name, array in found.items() if name in wanted]
        rows = self._of_rows(first, end).items()
        tensors += [self._row_tensor(name, numbers) for name, numbers in rows if name in wanted]
        return InferenceResponse(tensors)

    def _of_rows(self, first: int, end: int) -> dict[str, list[int]]:
        """What is told of each prompt, not of each text: where it stands, how long it is, and how much was written."""
        request = self._request
        return {
            "batch_index": [request.batch_index + place for place in range(len(request.rows))],
            "sequence_index": [request.sequence_index] * len(request.rows),
            "num_input_tokens": [len(row.tokens) for row in request.rows],
            "num_output_tokens": [sum(len(lane.written[first:end]) for lane in row) for row in self.lanes_by_row()],
        }

    def _logprobs(self, first: int, end: int) -> dict[str, npt.NDArray[Any]]:
        if not self._request.has_logprobs and not self._family.always_gives_logprobs:
            return {}
        width = self._request.max_tokens if self._family.fills_to_request else max(1, end - first)
        each = np.zeros((len(self.lanes), width), np.float32)
        for place, lane in enumerate(self.lanes):
            known = lane.logprobs[first:end]
            each[place, : len(known)] = known
        sums = np.array([sum(lane.logprobs[:end]) for lane in self.lanes], np.float32)
        return {"cum_log_probs": sums, "output_log_probs": each, "log_probs": each}

    def _tensor(self, name: str, array: npt.NDArray[Any]) -> Tensor:
        shape = (len(self._request.rows), self._request.beams, *array.shape[1:])
        found = array.reshape(shape)
        if name == "log_probs":  # which has the tokens before the beams
            found = found.swapaxes(1, 2)
        return Tensor(name, np.ascontiguousarray(found, self._types.get(name, np.int32)))

    def _row_tensor(self, name: str, numbers: list[int]) -> Tensor:
        return Tensor(name, np.array(numbers, self._types.get(name, np.int32)).reshape(-1, 1))

    @staticmethod
    def _filled(lane: Lane, text: list[int], width: int) -> list[int]:
        return text + [lane.row.fill] * (width - len(text))


_FINAL = TRITONSERVER_RESPONSE_COMPLETE_FINAL
