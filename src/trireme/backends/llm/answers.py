"""What clients get: a response per piece of text, or one with everything."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trireme.backends.llm.chat_message import ChatMessage
from trireme.backends.llm.llm_request import LlmRequest
from trireme.backends.llm.logprobs import LogprobTexts
from trireme.backends.llm.totals import Totals
from trireme.backends.python.pb_utils.errors import ErrorCode, TritonError
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.refusals import end_code
from trireme.backends.served_engine.slow_streams import SlowStreams, joined
from trireme.llm.generation import TextOutput, Usage
from trireme.llm.request import FinishReason, TokenLogprobs
from trireme.llm.tokenizer.port import Tokenizer

log = logging.getLogger(__name__)

REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}


class Answer:
    """Sends what becomes of one request; called in the thread that writes texts."""

    def __init__(
        self,
        llm_request: LlmRequest,
        sender: InferenceResponseSender,
        tokenizer: Tokenizer,
        on_end: Callable[[TextOutput], None],
        cancel: Callable[[], None] = lambda: None,
        slow_streams: SlowStreams | None = None,
    ) -> None:
        """`on_end` is called once, with the last output; `cancel` ends what is under way where one choice fails.

        `slow_streams` goes on where the client is slower than the answer is written; without one, the thread that
        writes texts waits for it.
        """
        self._slow_streams = slow_streams
        self._lock = threading.Lock()
        self._held: dict[int, list[TextOutput]] = {}
        """What may not be sent yet of each choice, at most the answer itself; the one that ends the answer is last."""
        self._llm_request = llm_request
        self._sender = sender
        self._logprobs = LogprobTexts(tokenizer, llm_request.tokens)
        self._totals = Totals(llm_request.outputs, len(llm_request.tokens), llm_request.params.choices)
        self._prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
        self._prompt = _shown_prompt(llm_request, tokenizer)
        self._on_end = on_end
        self._cancel = cancel
        self._kept: list[TextOutput] = []
        self._begun: set[int] = set()
        self.has_failed = False
        """Whether the client has been told of an error: nothing more is sent."""
        count = llm_request.params.choices if llm_request.is_chat else 0
        self._messages = [ChatMessage(llm_request.form.make_parser()) for _ in range(count)]

    def __call__(self, output: TextOutput) -> None:
        """Takes outputs of the request; never raises, so that the request is always answered."""
        with self._lock:
            if output.prompt_logprobs is not None:
                self._prompt_logprobs = output.prompt_logprobs
            if self._slow_streams is None or not (self._held or not self._sender.has_credit()):
                self._handle(output)
                return
            is_first = not self._held
            held = self._held.pop(output.index, []) if output.is_last else self._held.get(output.index, [])
            held.append(output)
            self._held[output.index] = held
        if is_first:
            self._slow_streams.add(self)

    def can_go_on(self) -> bool:
        """Whether something is held that may be sent by now."""
        return bool(self._held) and self._sender.has_credit()

    def release(self) -> bool:
        """Sends what may be sent of what is held, all of a choice at once; whether nothing is left."""
        with self._lock:
            while self.can_go_on():
                self._handle(joined(self._held.pop(next(iter(self._held)))))
            return not self._held

    def _handle(self, output: TextOutput) -> None:
        try:
            if not self.has_failed:
                self._take(output)
        except Exception as error:
            log.exception("an answer cannot be written")
            self._fail(TritonError(f"the answer cannot be written: {error}", ErrorCode.INTERNAL))
        finally:
            if output.is_last:
                self._on_end(output)

    def _take(self, output: TextOutput) -> None:
        if self._llm_request.is_prompt_only and output.finish_reason in REASONS:
            output = _without_text(output)
        if output.finish_reason is not None and output.finish_reason not in REASONS:
            text = output.error or f"the request was ended: {output.finish_reason.value}"
            self._fail(TritonError(text, end_code(output.finish_reason)))
        elif self._llm_request.is_stream:
            if output.text or output.finish_reason is not None or output.token_ids:
                self._send(self._piece(output), output.is_last)
        else:
            self._kept.append(output)
            if output.is_last:
                self._send(self._whole(), True)

    def _fail(self, error: TritonError) -> None:
        """The first error is the answer to the whole request; its other choices are ended."""
        self.has_failed = True
        self._kept.clear()
        try:
            self._send(InferenceResponse(error=error), True)
        except Exception:  # the client has its answer already, or the server is gone
            log.debug("the error '%s' reaches nobody", error, exc_info=True)
        self._cancel()

    def _send(self, response: InferenceResponse, is_last: bool) -> None:
        self._sender.send(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_last else 0)

    def _piece(self, output: TextOutput) -> InferenceResponse:
        wanted, text = self._llm_request.outputs, output.text
        delta = self._add_to_message(output)
        reason = self._reason(output)
        is_first = output.index not in self._begun
        self._begun.add(output.index)
        if is_first:
            text = self._prompt + text
        tensors = []
        if "text_output" in wanted:
            tensors.append(_texts("text_output", [text]))
        if "delta" in wanted:
            tensors.append(_texts("delta", [json.dumps(delta, ensure_ascii=False)]))
        if "index" in wanted:
            tensors.append(Tensor("index", np.array([output.index], np.int32)))
        if "finish_reason" in wanted:
            tensors.append(_texts("finish_reason", [reason]))
        if "usage" in wanted and output.usage is not None:
            tensors.append(_texts("usage", [_usage(output.usage)]))
        if "token_ids" in wanted:
            tensors.append(Tensor("token_ids", np.array(output.token_ids, np.int32)))
        if "logprobs" in wanted and (output.logprobs or (is_first and self._echoed)):
            tensors.append(_texts("logprobs", [self._logprobs_of([output], self._echoed if is_first else None)]))
        if "prompt_logprobs" in wanted and output.prompt_logprobs is not None:
            tensors.append(_texts("prompt_logprobs", [self._logprobs.of_prompt(output.prompt_logprobs)]))
        if "score" in wanted and output.score is not None:
            tensors.append(Tensor("score", np.array([output.score], np.float32)))
        return InferenceResponse(tensors + self._totals.tensors([[output]]))

    def _whole(self) -> InferenceResponse:
        llm_request, wanted = self._llm_request, self._llm_request.outputs
        groups: list[list[TextOutput]] = [[] for _ in range(llm_request.params.choices)]
        for one in self._kept:
            self._add_to_message(one)
            groups[one.index].append(one)
        texts = ["".join(one.text for one in group) for group in groups]
        tensors = []
        if "text_output" in wanted:
            tensors.append(_texts("text_output", [self._prompt + text for text in texts]))
        if "delta" in wanted:
            parts = [message.message() for message in self._messages]
            tensors.append(_texts("delta", [json.dumps(parts if len(parts) > 1 else parts[0], ensure_ascii=False)]))
        if "index" in wanted:
            tensors.append(Tensor("index", np.arange(len(groups), dtype=np.int32)))
        if "finish_reason" in wanted:
            tensors.append(_texts("finish_reason", [self._reason(group[-1]) for group in groups]))
        if "usage" in wanted:
            usage = self._kept[-1].usage
            assert usage is not None
            tensors.append(_texts("usage", [_usage(usage)]))
        if "token_ids" in wanted:
            ids = [token for group in groups for one in group for token in one.token_ids]
            tensors.append(Tensor("token_ids", np.array(ids, np.int32)))
        if "logprobs" in wanted and llm_request.params.logprobs is not None:
            tensors.append(_texts("logprobs", [self._logprobs_of(group, self._echoed) for group in groups]))
        if "prompt_logprobs" in wanted and self._prompt_logprobs is not None:
            tensors.append(_texts("prompt_logprobs", [self._logprobs.of_prompt(self._prompt_logprobs)]))
        if "score" in wanted and llm_request.params.beams:
            tensors.append(Tensor("score", np.array([group[-1].score for group in groups], np.float32)))
        return InferenceResponse(tensors + self._totals.tensors(groups))

    def _logprobs_of(self, group: Sequence[TextOutput], echoed: tuple[TokenLogprobs, ...] | None) -> str:
        if self._llm_request.has_logprobs_by_id:
            return self._logprobs.of_answer_by_id(group)
        return self._logprobs.of_answer(group, echoed)

    def _add_to_message(self, output: TextOutput) -> dict[str, Any]:
        """The delta of a piece, in chats."""
        if not self._messages:
            return {}
        reason = output.finish_reason
        return self._messages[output.index].add(output.text, reason is not None, reason is FinishReason.LENGTH)

    def _reason(self, output: TextOutput) -> str:
        reason = REASONS[output.finish_reason] if output.finish_reason is not None else ""
        has_calls = bool(self._messages) and self._messages[output.index].has_calls
        return "tool_calls" if reason == "stop" and has_calls else reason

    @property
    def _echoed(self) -> tuple[TokenLogprobs, ...] | None:
        return self._prompt_logprobs if self._llm_request.has_prompt_in_output else None


def tokens_answer(tokens: Sequence[int], texts: Sequence[str], max_length: int) -> InferenceResponse:
    """The answer to a request about tokens alone: their text, or that of each."""
    tensors = [_texts("text_output", texts), Tensor("token_ids", np.array(tokens, np.int32))]
    return InferenceResponse(tensors, parameters={"max_model_len": max_length})


def _shown_prompt(llm_request: LlmRequest, tokenizer: Tokenizer) -> str:
    """What stands before the text."""
    if not llm_request.has_prompt_in_output:
        return ""
    return llm_request.prompt if isinstance(llm_request.prompt, str) else tokenizer.decode(llm_request.tokens)


def _without_text(output: TextOutput) -> TextOutput:
    usage = None if output.usage is None else replace(output.usage, completion_tokens=0)
    return replace(output, text="", token_ids=(), logprobs=(), usage=usage, finish_reason=FinishReason.LENGTH)


def _usage(usage: Usage) -> str:
    return json.dumps(
        {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }
    )


def _texts(name: str, texts: Sequence[str]) -> Tensor:
    array = np.empty(len(texts), np.object_)
    array[:] = [text.encode(errors="replace") for text in texts]  # half a pair of surrogates is no UTF-8
    return Tensor(name, array)
