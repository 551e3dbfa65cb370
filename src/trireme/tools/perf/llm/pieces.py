"""Answers of language models taken apart: text by piece, when each came, and what the server counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from trireme.core.elements import decode_bytes
from trireme.tools.perf.load.records import RequestDetail
from trireme.tools.perf.wire import answers

_NUMBER_FIELDS = ("data", "rankings", "results")


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """One answer."""

    start_ns: int
    times_ns: tuple[int, ...]
    """When pieces came that have text."""
    texts: tuple[str, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    """As the server counted them; None where it did not say."""
    content: int
    """Which prompt it answers."""


def read_answer(detail: RequestDetail, kind: str) -> GeneratedText:
    """The answer of one request."""
    times, texts = [], []
    usage: dict[str, Any] = {}
    stamps: Sequence[int] = detail.times
    for number, body in enumerate(detail.outputs):
        text, counted = _piece(kind, body)
        usage = counted or usage
        if text:
            times.append(stamps[min(number, len(stamps) - 1)])
            texts.append(text)
    return GeneratedText(
        detail.start_ns,
        tuple(times),
        tuple(texts),
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        detail.content,
    )


def read_numbers(detail: RequestDetail, kind: str) -> GeneratedText:
    """The answer of one request for embeddings or a ranking, whose numbers nobody looks at: without a time where it is
    none."""
    document: Any = None
    try:
        document = orjson.loads(answers.response_text(kind, detail.outputs[0])) if detail.outputs else None
    except orjson.JSONDecodeError:
        pass
    times = (detail.times[-1],) if _entries(document) else ()
    return GeneratedText(detail.start_ns, times, (), None, None, detail.content)


def _entries(document: Any) -> list[Any]:
    """One for each text, as the services name them; empty where the document is something else."""
    if isinstance(document, dict):
        document = next((document[name] for name in _NUMBER_FIELDS if name in document), None)
    return document if isinstance(document, list) else []


def _piece(kind: str, body: Any) -> tuple[str, dict[str, Any] | None]:
    if kind == answers.GRPC_STREAM:
        outputs = answers.outputs_of(kind, body)
        _, value = outputs.get("text_output", ("BYTES", b""))
        return b"".join(decode_bytes(value)).decode("utf-8", "replace"), None
    text = answers.response_text(kind, body)
    if text.strip() == "[DONE]":
        return "", None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return "", None
    return _text_of(document), document.get("usage") if isinstance(document, dict) else None


def _text_of(document: Any) -> str:
    """The text of an OpenAI or generate answer, whole or a piece."""
    if not isinstance(document, dict):
        return ""
    if "choices" not in document:
        output = document.get("text_output", "")
        return "".join(map(str, output)) if isinstance(output, list) else str(output)
    parts = []
    for choice in document["choices"]:
        message = choice.get("delta") or choice.get("message") or {}
        parts += [choice.get("text"), message.get("reasoning_content"), message.get("content")]
    return "".join(part for part in parts if isinstance(part, str))
