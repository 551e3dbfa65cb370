"""What clients get: a response per piece of text, or one with everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trireme.backends.llm.chat_message import ChatMessage
from trireme.backends.llm.wishes import Wishes
from trireme.backends.python.pb_utils.errors import ErrorCode, TritonError
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.llm.generation import TextOutput, Usage
from trireme.llm.request import FinishReason, TokenLogprobs
from trireme.llm.tokenizer.port import Tokenizer

REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}
_CODES = {FinishReason.CANCELLED: ErrorCode.CANCELLED, FinishReason.TIMEOUT: ErrorCode.UNAVAILABLE}


class Answer:
    """Sends what becomes of one request; called in the thread that writes texts."""

    def __init__(
        self,
        wishes: Wishes,
        sender: InferenceResponseSender,
        tokenizer: Tokenizer,
        on_end: Callable[[TextOutput], None],
    ) -> None:
        self._wishes = wishes
        self._sender = sender
        self._tokenizer = tokenizer
        self._on_end = on_end
        self._kept: list[TextOutput] = []
        self._is_first = True
        count = wishes.params.choices if wishes.is_chat else 0
        self._messages = [ChatMessage(wishes.form.make_parser()) for _ in range(count)]

    def __call__(self, output: TextOutput) -> None:
        """Takes news of the request."""
        if output.finish_reason is not None and output.finish_reason not in REASONS:
            self._fail(output)
        elif self._wishes.is_stream:
            if output.text or output.finish_reason is not None or output.token_ids:
                self._send(self._piece(output), output.is_last)
        else:
            self._kept.append(output)
            if output.is_last:
                self._send(self._whole(), True)
        if output.is_last:
            self._on_end(output)

    def _fail(self, output: TextOutput) -> None:
        assert output.finish_reason is not None
        text = output.error or f"the request was ended: {output.finish_reason.value}"
        error = TritonError(text, _CODES.get(output.finish_reason, ErrorCode.INTERNAL))
        if output.is_last:
            self._send(InferenceResponse(error=error), True)

    def _send(self, response: InferenceResponse, is_last: bool) -> None:
        self._sender.send(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_last else 0)

    def _piece(self, output: TextOutput) -> InferenceResponse:
        wanted, text = self._wishes.outputs, output.text
        delta = self._add_to_message(output)
        reason = self._reason(output)
        if self._is_first and self._wishes.has_prompt_in_output and isinstance(self._wishes.prompt, str):
            text = self._wishes.prompt + text
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
        if "logprobs" in wanted and output.logprobs:
            tensors.append(_texts("logprobs", [self._logprobs([output])]))
        self._is_first = False
        return InferenceResponse(tensors)

    def _whole(self) -> InferenceResponse:
        wishes, wanted = self._wishes, self._wishes.outputs
        for one in self._kept:
            self._add_to_message(one)
        groups = [[one for one in self._kept if one.index == index] for index in range(wishes.params.choices)]
        texts = ["".join(one.text for one in group) for group in groups]
        prompt = wishes.prompt if wishes.has_prompt_in_output and isinstance(wishes.prompt, str) else ""
        tensors = []
        if "text_output" in wanted:
            tensors.append(_texts("text_output", [prompt + text for text in texts]))
        if "delta" in wanted:
            parts = [message.message() for message in self._messages]
            tensors.append(_texts("delta", [json.dumps(parts if len(parts) > 1 else parts[0], ensure_ascii=False)]))
        if "index" in wanted:
            tensors.append(Tensor("index", np.zeros(1, np.int32)))
        if "finish_reason" in wanted:
            tensors.append(_texts("finish_reason", [self._reason(group[-1]) for group in groups]))
        if "usage" in wanted:
            usage = self._kept[-1].usage
            assert usage is not None
            tensors.append(_texts("usage", [_usage(usage)]))
        if "token_ids" in wanted:
            ids = [token for group in groups for one in group for token in one.token_ids]
            tensors.append(Tensor("token_ids", np.array(ids, np.int32)))
        if "logprobs" in wanted and wishes.params.logprobs is not None:
            tensors.append(_texts("logprobs", [self._logprobs(group) for group in groups]))
        return InferenceResponse(tensors)

    def _add_to_message(self, output: TextOutput) -> dict[str, Any]:
        """The delta of a piece, in chats."""
        if not self._messages:
            return {}
        return self._messages[output.index].add(output.text, output.finish_reason is not None)

    def _reason(self, output: TextOutput) -> str:
        reason = REASONS[output.finish_reason] if output.finish_reason is not None else ""
        has_calls = bool(self._messages) and self._messages[output.index].has_calls
        return "tool_calls" if reason == "stop" and has_calls else reason

    def _logprobs(self, outputs: Sequence[TextOutput]) -> str:
        entries = [
            self._token_logprobs(token, found)
            for output in outputs
            for token, found in zip(output.token_ids, output.logprobs, strict=False)
        ]
        return json.dumps({"content": entries}, ensure_ascii=False)

    def _token_logprobs(self, token: int, found: TokenLogprobs) -> dict[str, Any]:
        top = [self._described(other, value) for other, value in found.top]
        return {**self._described(token, found.logprob), "top_logprobs": top}

    def _described(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._tokenizer.token_text(token)
        return {"token": text, "bytes": list(text.encode()), "logprob": logprob}


def refusal(error: Exception) -> InferenceResponse:
    """The answer to a request that cannot be followed."""
    return InferenceResponse(error=TritonError(str(error), ErrorCode.INVALID_ARG))


def tokens_answer(tokens: Sequence[int], text: str) -> InferenceResponse:
    """The answer to a request about tokens alone."""
    return InferenceResponse([_texts("text_output", [text]), Tensor("token_ids", np.array(tokens, np.int32))])


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
    array[:] = [text.encode() for text in texts]
    return Tensor(name, array)
