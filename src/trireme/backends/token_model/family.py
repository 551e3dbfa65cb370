"""In what the families of token models differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One of them."""

    name: str
    fills_to_request: bool
    """Whether answers have the length of the longest prompt and the longest answer asked for together, filled up with
    the end; else that of the longest row, filled up with `pad_id`."""
    streams_whole: bool
    """Whether each response of a stream has all tokens so far, and every request of a decoupled model is one; else it
    has the new tokens, and requests ask for streams."""
    checks_ids: bool
    """Whether request ids are numbers, in use once at a time, and can be stopped; else they are the client's own."""
    always_gives_logprobs: bool
    """Whether probabilities that are not asked for are still given, as zeros."""
    length_penalty: float = 1.0
    """Of a search whose request names none."""
    takes_any_id: bool = False
    """Whether ids may be any text, and a stop for a request that has ended is answered as if it ran; else ids are
    numbers, and such a stop is refused."""
    answers_apart: bool = False
    """Whether a decoupled model answers each prompt of a request, and each of its texts, with responses of its own."""
    has_start: bool = False
    """Whether a prompt without tokens begins with the checkpoint's start where its request names none."""


INFLIGHT = Family("tensorrtllm", False, False, True, True)
"""TensorRT-LLM's backend."""
EXECUTOR = Family("tensorrtllm", False, False, True, True, takes_any_id=True, answers_apart=True)
"""The same in its later releases, and their Python model that does what it does."""
WHOLE = Family("tensorrtllm", False, False, False, True)
"""The same for configurations that declare neither `stop` nor `streaming`: ids mean nothing to it."""
SESSION = Family("tensorrt_llm/1/model.py", True, False, False, False)
"""TensorRT-LLM's Python model, which runs one batch after another, in its early releases."""
FASTER_TRANSFORMER = Family("fastertransformer", True, True, False, False, length_penalty=0.0, has_start=True)
