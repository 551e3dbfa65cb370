"""Answers to completions and chats, whole or in chunks, as JSON."""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson

from trireme.protocol.openai.legacy_logprobs import LegacyLogprobs
from trireme.protocol.openai.pieces import Piece, join_delta
from trireme.protocol.openai.usage import Usage

DONE: Final = b"[DONE]"
"""The data of a stream's last event."""
_STOP: Final = "stop"


class AnswerWriter(Protocol):
    """One answer being written; it is either added up or streamed."""

    answer_id: str
    """What clients know it by."""

    def chunk(self, piece: Piece) -> bytes:
        """The data of the event for one more piece; empty where there is nothing to say."""

    def usage_chunk(self, usage: Usage) -> bytes:
        """The data of the event that tells the usage, behind all others."""

    def add(self, piece: Piece) -> None:
        """Keeps a piece for the whole answer."""

    def whole(self, usage: Usage) -> bytes:
        """The whole answer."""


class ChatWriter:
    """`chat.completion` and `chat.completion.chunk`."""

    def __init__(self, answer_id: str, created_s: int, model: str) -> None:
        self.answer_id = answer_id
        self._head: dict[str, Any] = {"id": answer_id, "created": created_s, "model": model}
        self._choices: dict[int, dict[str, Any]] = {}
        self._begun: set[int] = set()

    def chunk(self, piece: Piece) -> bytes:
        delta = _delta_of(piece)
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            first = {"role": "assistant"} if delta.keys() - {"role"} else {"role": "assistant", "content": ""}
            delta = {**first, **delta}
        elif not delta and not piece.finish_reason and piece.logprobs is None and piece.prompt_logprobs is None:
            return b""
        choice = {
            "index": piece.index,
            "delta": delta,
            "logprobs": piece.logprobs,
            "finish_reason": piece.finish_reason or None,
        }
        head = {**self._head, "object": "chat.completion.chunk", **_prompt_member(piece)}
        return _dump({**head, "choices": [choice]})

    def usage_chunk(self, usage: Usage) -> bytes:
        return _dump({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage.members()})

    def add(self, piece: Piece) -> None:
        choice = self._choices.get(piece.index)
        if choice is None:
            message = {"role": "assistant", "content": "" if piece.delta is None else None}
            choice = {"index": piece.index, "message": message, "logprobs": None, "finish_reason": _STOP}
            self._choices[piece.index] = choice
        join_delta(choice["message"], _delta_of(piece))
        self._head |= _prompt_member(piece)
        choice["finish_reason"] = piece.finish_reason or choice["finish_reason"]
        if piece.logprobs is not None:
            known = choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
            known["content"] += piece.logprobs.get("content") or []

    def whole(self, usage: Usage) -> bytes:
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            for call in choice["message"].get("tool_calls") or ():
                call.pop("index", None)
        return _dump({**self._head, "object": "chat.completion", "choices": choices, **_usage_member(usage)})


class CompletionWriter:
    """`text_completion`, which is also the name of its chunks."""

    def __init__(self, answer_id: str, created_s: int, model: str) -> None:
        self.answer_id = answer_id
        self._head = {"id": answer_id, "object": "text_completion", "created": created_s, "model": model}
        self._choices: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        self._logprobs: dict[int, LegacyLogprobs] = {}

    def chunk(self, piece: Piece) -> bytes:
        if not piece.text and not piece.finish_reason and piece.logprobs is None and piece.prompt_logprobs is None:
            return b""
        logprobs = None if piece.logprobs is None else self._legacy(piece.index).take(piece.logprobs, piece.text)
        choice = _text_choice(piece.index, piece.text, logprobs, piece.finish_reason) | _prompt_member(piece)
        return _dump({**self._head, "choices": [choice]})

    def usage_chunk(self, usage: Usage) -> bytes:
        return _dump({**self._head, "choices": [], "usage": usage.members()})

    def add(self, piece: Piece) -> None:
        choice = self._choices.setdefault(piece.index, _text_choice(piece.index, "", None, _STOP))
        self._texts.setdefault(piece.index, []).append(piece.text)
        choice |= _prompt_member(piece)
        choice["finish_reason"] = piece.finish_reason or choice["finish_reason"]
        if piece.logprobs is not None:
            choice["logprobs"] = self._legacy(piece.index).joined(choice["logprobs"], piece.logprobs, piece.text)

    def whole(self, usage: Usage) -> bytes:
        choices = [{**self._choices[index], "text": "".join(self._texts[index])} for index in sorted(self._choices)]
        return _dump({**self._head, "choices": choices, **_usage_member(usage)})

    def _legacy(self, index: int) -> LegacyLogprobs:
        return self._logprobs.setdefault(index, LegacyLogprobs())


def encode_model(name: str, created_s: int, parent: str | None = None) -> dict[str, Any]:
    """One model of the list; `parent` is the model that it is an adapter of."""
    model = {"id": name, "object": "model", "created": created_s, "owned_by": "trireme"}
    return model if parent is None else {**model, "parent": parent}


def _text_choice(index: int, text: str, logprobs: Any, finish_reason: str) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason or None}


def _delta_of(piece: Piece) -> dict[str, Any]:
    if piece.delta is not None:
        return piece.delta
    return {"content": piece.text} if piece.text else {}


def _prompt_member(piece: Piece) -> dict[str, Any]:
    return {} if piece.prompt_logprobs is None else {"prompt_logprobs": piece.prompt_logprobs}


def _usage_member(usage: Usage) -> dict[str, Any]:
    return {"usage": usage.members()} if usage.is_known else {}


def _dump(answer: dict[str, Any]) -> bytes:
    return orjson.dumps(answer)
