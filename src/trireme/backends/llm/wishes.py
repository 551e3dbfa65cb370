"""What a request asks for: its prompt, its options, and which outputs it wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trireme.backends.llm.answer_form import OPTIONS, AnswerForm, AnswerForms
from trireme.backends.llm.tensors import OUTPUTS
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.llm.sampling_params import MAX_TOP_LOGPROBS, SamplingError, SamplingParams
from trireme.llm.text_engine import Prompt
from trireme.llm.tokenizer.port import Tokenizer

IGNORED = frozenset({"user", "metadata", "store", "service_tier", "logit_bias_type"})
"""Options of other servers that change nothing here."""
_PLAIN: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "max_tokens": ("max_tokens", int),
    "max_new_tokens": ("max_tokens", int),
    "max_completion_tokens": ("max_tokens", int),
    "min_tokens": ("min_tokens", int),
    "temperature": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "repetition_penalty": ("repetition_penalty", float),
    "presence_penalty": ("presence_penalty", float),
    "frequency_penalty": ("frequency_penalty", float),
    "seed": ("seed", int),
    "ignore_eos": ("ignores_eos", bool),
    "include_stop_str_in_output": ("includes_stop", bool),
    "n": ("choices", int),
    "prompt_logprobs": ("prompt_logprobs", int),
}
_OWN = frozenset({
    "stop", "stop_token_ids", "logit_bias", "bad_words", "logprobs", "top_logprobs", "echo", "priority", "operation",
    "chat_template_kwargs", "add_generation_prompt",
})  # fmt: skip


class WishError(ValueError):
    """A request that cannot be followed; the text names the field."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """One request, read."""

    prompt: Prompt
    tokens: list[int]
    params: SamplingParams
    is_chat: bool
    is_stream: bool
    has_prompt_in_output: bool
    outputs: frozenset[str]
    priority: int
    operation: str
    """"tokenize", "detokenize", or "" for an answer."""
    form: AnswerForm


def read_wishes(request: InferenceRequest, tokenizer: Tokenizer, names: Collection[str], forms: AnswerForms) -> Wishes:
    """Raises WishError, SamplingError or the tokenizer's errors."""
    inputs = {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}
    options = _options(inputs, json.loads(request.parameters() or "{}"))
    prompt, is_chat = _prompt(inputs)
    wanted = frozenset(names) & OUTPUTS.keys()
    if not wanted or wanted == OUTPUTS.keys():  # nobody asks for all of them: none was named
        wanted = frozenset({"text_output"})
    if not is_chat:
        wanted -= {"delta"}
    operation = str(options.get("operation", ""))
    tokens = (
        _tokens(prompt, is_chat, options, tokenizer)
        if operation != "detokenize"
        else [token for token in prompt if isinstance(token, int)]
    )
    form = forms.read(options, is_chat, tokens)
    params = _params(options, tokenizer, form)
    return Wishes(
        prompt,
        tokens,
        params,
        is_chat,
        bool(inputs["stream"][0]) if "stream" in inputs else bool(options.get("stream", False)),
        _has_prompt(inputs, options),
        wanted,
        _number("priority", options.get("priority", 0), int),
        operation,
        form,
    )


def _has_prompt(inputs: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    if "exclude_input_in_output" in inputs:
        return not bool(inputs["exclude_input_in_output"][0])
    return bool(options.get("echo", False))


def _options(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "sampling_parameters" in inputs:
        text = _text(inputs["sampling_parameters"][0])
        try:
            found = json.loads(text)
        except ValueError as error:
            raise WishError(f"'sampling_parameters' is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise WishError("'sampling_parameters' must be a JSON object")
        options |= found
    options |= {key: value for key, value in parameters.items() if not key.startswith("triton_")}
    known = _PLAIN.keys() | _OWN | OPTIONS | IGNORED | {"stream"}
    for key in options.keys() - known:
        raise WishError(f"there is no option '{key}'; known are: {', '.join(sorted(known - IGNORED))}")
    return {key: value for key, value in options.items() if value is not None}


def _prompt(inputs: Mapping[str, Any]) -> tuple[Prompt, bool]:
    given = [name for name in ("text_input", "messages", "input_ids") if name in inputs]
    if len(given) != 1:
        found = " and ".join(f"'{name}'" for name in given) or "none of them"
        raise WishError(f"a request brings one of 'text_input', 'messages' and 'input_ids', found {found}")
    values = inputs[given[0]]
    if given[0] == "input_ids":
        return [int(value) for value in values], False
    if given[0] == "text_input":
        return _text(values[0]), False
    return _messages([_text(value) for value in values]), True


def _messages(texts: list[str]) -> list[dict[str, Any]]:
    found: list[Any] = []
    for text in texts:
        try:
            entry = json.loads(text)
        except ValueError as error:
            raise WishError(f"'messages' is no JSON: {error}") from None
        found += entry if isinstance(entry, list) else [entry]
    if not found or not all(isinstance(entry, dict) for entry in found):
        raise WishError("'messages' must be a JSON list of objects, with at least one")
    return found


def _tokens(prompt: Prompt, is_chat: bool, options: Mapping[str, Any], tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if not is_chat:
        return [token for token in prompt if isinstance(token, int)]
    extra = options.get("chat_template_kwargs", {})
    if isinstance(extra, str):
        extra = _json("chat_template_kwargs", extra)
    tools = options.get("tools") or None
    if isinstance(tools, str):
        tools = _json("tools", tools)
    if options.get("tool_choice") == "none":
        tools = None
    return tokenizer.chat(
        [entry for entry in prompt if isinstance(entry, Mapping)],
        tools=tools,
        add_generation_prompt=bool(options.get("add_generation_prompt", True)),
        **extra,
    )


def _params(options: Mapping[str, Any], tokenizer: Tokenizer, form: AnswerForm) -> SamplingParams:
    found: dict[str, Any] = {"grammar": form.grammar, "shown_ids": form.shown_ids}
    for key, (field, kind) in _PLAIN.items():
        if key in options:
            found[field] = _number(key, options[key], kind)
    if found.get("top_k", 0) < 0:
        found["top_k"] = 0  # -1 is "all" elsewhere
    stop = options.get("stop", ())
    found["stop"] = tuple(_strings("stop", [stop] if isinstance(stop, str) else stop))
    found["stop_ids"] = tuple(_number("stop_token_ids", entry, int) for entry in options.get("stop_token_ids", ()))
    found["logit_bias"] = _bias(options.get("logit_bias", {}))
    found["bad_words"] = _bad_words(_strings("bad_words", options.get("bad_words", ())), tokenizer)
    found["logprobs"] = _logprobs(options)
    return SamplingParams(**found)


def _logprobs(options: Mapping[str, Any]) -> int | None:
    wanted, top = options.get("logprobs"), options.get("top_logprobs")
    if wanted is None or wanted is False:
        return None
    count = _number("top_logprobs", top, int) if top is not None else 0 if wanted is True else int(wanted)
    if not 0 <= count <= MAX_TOP_LOGPROBS:
        raise SamplingError(f"'top_logprobs' must be between 0 and {MAX_TOP_LOGPROBS}, found {count}")
    return count


def _bias(given: Any) -> dict[int, float]:
    if isinstance(given, str):
        given = _json("logit_bias", given)
    if not isinstance(given, Mapping):
        raise WishError("'logit_bias' must be an object of token ids with numbers")
    try:
        return {int(token): float(value) for token, value in given.items()}
    except (TypeError, ValueError):
        raise WishError("'logit_bias' must be an object of token ids with numbers") from None


def _bad_words(words: list[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each as it is written at a text's beginning and inside of it."""
    found = {tuple(tokenizer.encode(form, add_special=False)) for word in words for form in (word, f" {word}")}
    return tuple(sorted(entry for entry in found if entry))


def _strings(name: str, values: Any) -> list[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise WishError(f"'{name}' must be a string or a list of strings")
    return list(values)


def _number(name: str, value: Any, kind: Callable[[Any], Any]) -> Any:
    if kind is bool:
        if isinstance(value, bool | int):
            return bool(value)
        raise WishError(f"'{name}' must be true or false, found {value!r}")
    try:
        if isinstance(value, bool):
            raise ValueError
        number = kind(value)
        if kind is int and float(value) != number:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        wanted = "a whole number" if kind is int else "a number"
        raise WishError(f"'{name}' must be {wanted}, found {value!r}") from None
    return number


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise WishError(f"'{name}' is no JSON: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise WishError(f"a text is not UTF-8: {error}") from None
    return str(value)
