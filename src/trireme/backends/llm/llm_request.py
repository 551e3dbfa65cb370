"""What a request asks for: its prompt, its options, and which outputs it wants."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from trireme.backends.llm.answer_form import OPTIONS, AnswerForm, AnswerForms
from trireme.backends.llm.sampling_options import (
    MAX_ID,
    MAX_TOKENS,
    SAMPLING_OPTIONS,
    number,
    read_json,
    read_params,
)
from trireme.backends.llm.tensors import INPUTS, OUTPUTS
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.served_engine.refusals import InvalidRequestError, unknown_option
from trireme.backends.served_engine.returned import asked_for
from trireme.llm.sampling_params import LongPromptError, SamplingParams
from trireme.llm.text_engine import Prompt
from trireme.llm.tokenizer.port import Tokenizer

IGNORED = frozenset({"user", "metadata", "store", "service_tier", "logit_bias_type"})
"""Options of other servers that change nothing here."""
_OWN = frozenset({
    "stream", "echo", "priority", "operation", "chat_template_kwargs", "add_generation_prompt", "add_special_tokens",
    "return_token_strs",
})  # fmt: skip
_PROMPT_ELSEWHERE = frozenset({"prompt", "text", "input", "inputs", "query"})
"""What other servers call a text to continue."""
_ADAPTER = ("adapter", "lora_name", "lora")
"""The names of the adapter to write with."""
KNOWN = SAMPLING_OPTIONS | _OWN | OPTIONS | IGNORED | frozenset(_ADAPTER)
"""Every option that a request may bring."""
_RESERVED = ("self", "messages", "tools", "add_generation_prompt")
"""What a chat template gets anyway."""
_MOST_US = 2**63
MAX_LOGPROBS = 4_000_000
"""Probabilities that one request may ask for, in all its choices."""


@dataclass(frozen=True, slots=True)
class LlmRequest:
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
    is_prompt_only: bool = False
    """Whether nothing but what is known of the prompt is wanted."""
    adapter: str = ""
    """The name of the adapter to write with; "": none."""
    has_token_texts: bool = False
    """Of a request about tokens alone: whether the text of each is wanted."""
    has_logprobs_by_id: bool = False
    """Whether the answer's probabilities are told as vLLM does, and not as OpenAI's API has them."""


def read_llm_request(
    request: InferenceRequest, tokenizer: Tokenizer, names: Collection[str], forms: AnswerForms
) -> LlmRequest:
    """Raises InvalidRequestError, SamplingError or the tokenizer's errors."""
    try:
        return _read(request, tokenizer, names, forms)
    except RecursionError:
        raise InvalidRequestError("the request's 'messages' or options are nested too deeply") from None


def read_timeout_s(request: InferenceRequest) -> float | None:
    """How long the request may take: what its protocol says, or its option `timeout`, both in microseconds."""
    found = request.timeout()
    if not found and '"timeout"' in request.parameters():
        found = _timeout_us(json.loads(request.parameters()))
    if not found:
        own = next((one for one in request.inputs() if one.name() == "sampling_parameters"), None)
        text = "" if own is None else _text(own.as_numpy().reshape(-1)[0])
        found = _timeout_us(_sampling_parameters(text)) if '"timeout"' in text else 0
    return found / 1e6 if found else None


def _timeout_us(options: Mapping[str, Any]) -> int:
    found: int = number("timeout", options.get("timeout") or 0, int)
    if not 0 <= found < _MOST_US:
        raise InvalidRequestError(
            f"'timeout' must be 0 or more microseconds, less than 2^63, found {reprlib.repr(found)}"
        )
    return found


def _read(request: InferenceRequest, tokenizer: Tokenizer, names: Collection[str], forms: AnswerForms) -> LlmRequest:
    inputs = {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}
    options = _options(inputs, json.loads(request.parameters() or "{}"))
    prompt, is_chat = _prompt(inputs)
    operation = str(options.get("operation", ""))
    told = asked_for(inputs) & (frozenset(names) or OUTPUTS.keys())
    wanted = _outputs(names, options, told)
    if "delta" in wanted and not is_chat:
        raise InvalidRequestError("the output 'delta' comes with 'messages' alone; ask for 'text_output'")
    if wanted & {"cumulative_logprob", "logprobs"} and not options.get("logprobs"):
        options["logprobs"] = 0  # the tokens themselves, where no others are wanted
    if "prompt_logprobs" in wanted:
        options.setdefault("prompt_logprobs", 0)
    tokens = (
        _tokens(prompt, is_chat, options, tokenizer)
        if operation != "detokenize"
        else _ids_to_read(prompt, 2 * forms.max_length)
    )
    form = forms.read(options, is_chat, tokens)
    if forms.max_new_tokens is not None and not options.keys() & MAX_TOKENS:
        options["max_tokens"] = forms.max_new_tokens
    is_prompt_only = options.get("max_tokens") == 0 and _has_prompt(inputs, options)
    if is_prompt_only:
        options["max_tokens"] = 1  # which is not told
    params = read_params(options, tokenizer, form.grammar, form.shown_ids)
    is_stream = bool(inputs["stream"][0]) if "stream" in inputs else _flag("stream", options)
    if is_stream and params.choices > 1:
        wanted |= {"index"}  # whose piece it is
    if "score" in wanted and not params.beams:
        raise InvalidRequestError(
            "the output 'score' comes with a beam search alone: add 'num_beams', or do not ask for it"
        )
    has_prompt = _has_prompt(inputs, options) and not is_chat
    if has_prompt and params.logprobs is not None and "logprobs" in wanted - told:
        params = replace(params, prompt_logprobs=max(params.logprobs, params.prompt_logprobs or 0))
    _check_logprobs(params, len(tokens), forms.max_length - len(tokens))
    return LlmRequest(
        prompt,
        tokens,
        params,
        is_chat,
        is_stream,
        has_prompt,
        wanted,
        number("priority", options.get("priority", 0), int),
        operation,
        form,
        is_prompt_only and has_prompt,
        _adapter(options),
        _flag("return_token_strs", options),
        "logprobs" in told,
    )


def _outputs(names: Collection[str], options: Mapping[str, Any], told: frozenset[str]) -> frozenset[str]:
    """What is named, and what flags and options ask for where nothing is."""
    named = frozenset(names) & OUTPUTS.keys()
    if named and named != OUTPUTS.keys():  # nobody asks for all of them: none was named
        return named | told
    wanted = {"text_output"}
    if options.get("prompt_logprobs") is not None:
        wanted.add("prompt_logprobs")
    if options.get("logprobs") is not None and options["logprobs"] is not False:
        wanted.add("logprobs")
    return told | wanted


def _adapter(options: Mapping[str, Any]) -> str:
    given = {key: options[key] for key in _ADAPTER if options.get(key)}
    for key, value in given.items():
        if not isinstance(value, str):
            raise InvalidRequestError(f"'{key}' must be the name of an adapter, found {value!r:.80}")
    if len(set(given.values())) > 1:
        raise InvalidRequestError(f"{' and '.join(given)} name different adapters; a request is written with one")
    return next(iter(given.values()), "")


def _has_prompt(inputs: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    if "exclude_input_in_output" in inputs:
        return not bool(inputs["exclude_input_in_output"][0])
    return _flag("echo", options)


def _flag(name: str, options: Mapping[str, Any]) -> bool:
    return bool(number(name, options.get(name, False), bool))


def _options(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "sampling_parameters" in inputs:
        options |= _sampling_parameters(_text(inputs["sampling_parameters"][0]))
    options |= {key: value for key, value in parameters.items() if not key.startswith("triton_")}
    options.pop("timeout", None)  # is counted from the request's arrival on
    for key in options.keys() - KNOWN:
        if key in _PROMPT_ELSEWHERE:
            raise InvalidRequestError(f"there is no option '{key}'; did you mean the input 'text_input'?")
        raise unknown_option("option", key, (KNOWN | INPUTS.keys() | {"timeout"}) - IGNORED - {key})
    return {key: value for key, value in options.items() if value is not None}


def _sampling_parameters(text: str) -> dict[str, Any]:
    found = read_json("sampling_parameters", text)
    if not isinstance(found, dict):
        raise InvalidRequestError("'sampling_parameters' must be a JSON object")
    return found


def _prompt(inputs: Mapping[str, Any]) -> tuple[Prompt, bool]:
    given = [name for name in ("text_input", "messages", "input_ids") if name in inputs]
    if len(given) != 1:
        found = " and ".join(f"'{name}'" for name in given) or "none of them"
        raise InvalidRequestError(f"a request brings one of 'text_input', 'messages' and 'input_ids', found {found}")
    values = inputs[given[0]]
    if given[0] == "input_ids":
        wrong = values[(values < 0) | (values >= MAX_ID)]
        if wrong.size:
            raise InvalidRequestError(f"'input_ids' has {wrong[0]}, which is no token id")
        return values.tolist(), False
    if given[0] == "text_input":
        return _text(values[0]), False
    return _messages([_text(value) for value in values]), True


def _messages(texts: list[str]) -> list[dict[str, Any]]:
    found: list[Any] = []
    for text in texts:
        entry = read_json("messages", text)
        found += entry if isinstance(entry, list) else [entry]
    if not found or not all(isinstance(entry, dict) for entry in found):
        raise InvalidRequestError("'messages' must be a JSON list of objects, with at least one")
    return found


def _ids_to_read(prompt: Prompt, most: int) -> list[int]:
    if len(prompt) > most:
        raise LongPromptError(f"there are {len(prompt)} token ids; at most {most} are read at once, give them in parts")
    return [token for token in prompt if isinstance(token, int)]


def _tokens(prompt: Prompt, is_chat: bool, options: Mapping[str, Any], tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, number("add_special_tokens", options.get("add_special_tokens", True), bool))
    if not is_chat:
        return cast("list[int]", prompt)
    if number("add_special_tokens", options.get("add_special_tokens", False), bool):
        raise InvalidRequestError(
            "'add_special_tokens' must be false for 'messages': the chat template writes special tokens"
        )
    tools = options.get("tools") or None
    if isinstance(tools, str):
        tools = read_json("tools", tools)
    if options.get("tool_choice") == "none":
        tools = None
    if tools is not None and not isinstance(tools, list):
        raise InvalidRequestError("'tools' must be a list of tools")
    return tokenizer.chat(
        [entry for entry in prompt if isinstance(entry, Mapping)],
        tools=tools,
        add_generation_prompt=number("add_generation_prompt", options.get("add_generation_prompt", True), bool),
        **_template_values(options.get("chat_template_kwargs", {})),
    )


def _template_values(given: Any) -> Mapping[str, Any]:
    if isinstance(given, str):
        given = read_json("chat_template_kwargs", given)
    if not isinstance(given, Mapping):
        raise InvalidRequestError("'chat_template_kwargs' must be an object")
    for name in _RESERVED:
        if name in given:
            raise InvalidRequestError(f"'chat_template_kwargs' must not have '{name}', which the template gets anyway")
    return given


def _check_logprobs(params: SamplingParams, prompt_size: int, room: int) -> None:
    count = 0
    if params.logprobs is not None:
        length = room if params.max_tokens is None else min(params.max_tokens, room)
        count += max(params.choices, params.beams) * length * (params.logprobs + 1)
    if params.prompt_logprobs is not None:
        count += prompt_size * (params.prompt_logprobs + 1)
    if count > MAX_LOGPROBS:
        raise InvalidRequestError(
            f"'n', 'max_tokens' and 'logprobs' (or 'top_logprobs', 'prompt_logprobs') ask for {count} probabilities; "
            f"at most {MAX_LOGPROBS} are told"
        )


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"a text is not UTF-8: {error}") from None
    return str(value)
