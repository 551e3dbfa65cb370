"""A request as tensors of Triton's vLLM backend, read."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from trireme.backends.llm.sampling_options import read_json
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.backends.served_engine.returned import asked_for
from trireme.backends.vllm.chat import Chat, read_chat
from trireme.core.reading import json_levels

_TEXTS = frozenset({"stop", "bad_words", "guided_regex", "guided_grammar", "guided_choice", "guided_json"})
"""Options that may be texts, and are not read as numbers."""
_REFUSED = {"image": "models of texts alone are served", "embedding_request": "no embeddings are given"}


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One prompt, and what is wanted of it."""

    prompt: str
    is_stream: bool
    has_prompt: bool
    """Whether the answer begins with the prompt."""
    options: dict[str, Any]
    """By vLLM's names for how tokens are chosen."""
    told: frozenset[str]
    """The outputs that are wanted beside the text."""
    adapter: str = ""
    """The name of the adapter to write with; "": none."""
    chat: Chat | None = None
    """What is to be answered in place of the prompt, which is empty then."""


def read_text_request(request: InferenceRequest, adapters: Collection[str] | None) -> TextRequest:
    """Raises InvalidRequestError with the tensor's name; `adapters` are those that may be asked for, None where the
    model is not to have any."""
    inputs = {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}

    def flag(name: str, default: bool = False) -> bool:
        return bool(inputs[name][0]) if name in inputs and inputs[name].size else default

    for name, reason in _REFUSED.items():
        if name in inputs and inputs[name].size:
            raise InvalidRequestError(f"'{name}' cannot be followed: {reason}")
    given = [name for name in ("text_input", "messages") if name in inputs and inputs[name].size]
    if len(given) != 1:
        raise InvalidRequestError(
            "'text_input' and 'messages' exclude each other" if given else "'text_input' is missing"
        )
    is_chat, text = given == ["messages"], _text(inputs[given[0]][0])
    is_stream = flag("stream")
    has_prompt = not is_chat and not flag("exclude_input_in_output", is_stream)
    if is_stream and has_prompt:
        raise InvalidRequestError("When streaming, `exclude_input_in_output` = False is not allowed.")
    if "sampling_parameters" in inputs and inputs["sampling_parameters"].size:
        options = read_json("sampling_parameters", _text(inputs["sampling_parameters"][0]))
    else:
        options = json.loads(request.parameters() or "{}")
    if not isinstance(options, dict):
        raise InvalidRequestError("'sampling_parameters' must be a JSON object")
    adapter = _adapter(options.pop("lora_name", None), adapters)
    chat = read_chat(text, options) if is_chat else None
    return TextRequest(
        "" if is_chat else text,
        is_stream,
        has_prompt,
        _read_options(options),
        asked_for(inputs),
        adapter,
        chat,
    )


def _adapter(name: Any, known: Collection[str] | None) -> str:
    if name is None:
        return ""
    if known is None:
        raise InvalidRequestError("LoRA feature is not enabled.")
    if not isinstance(name, str) or name not in known:
        raise InvalidRequestError(f"LoRA {name!s:.80} is not supported, we currently support {list(known)}")
    return name


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Numbers and flags may be texts, as clients of Triton send them."""
    found = {}
    for key, value in given.items():
        if key.startswith("triton_") or value is None:
            continue
        found[key] = value if key in _TEXTS or not isinstance(value, str) else _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json_levels.read_json(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"a text is not UTF-8: {error}") from None
