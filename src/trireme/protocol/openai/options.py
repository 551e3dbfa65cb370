"""The options of a generation: read and checked once, under the names that language models know them by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trireme.core.errors import InvalidArgumentError
from trireme.protocol.json_codec.writer import encode_value
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import MAX_INTEGER, Fields, is_token_ids, wrong_type

MAX_CHOICES: Final = 128
MAX_STOPS: Final = 64
MAX_STOP_CHARACTERS: Final = 4096
MAX_BIASED_TOKENS: Final = 1024
MAX_TOP_LOGPROBS: Final = 20
MAX_LOGPROBS: Final = 4_000_000
"""In all texts of an answer."""
MAX_TOOLS: Final = 256
MIN_SEED: Final = -(2**63)
MAX_SEED: Final = 2**64 - 1
MAX_LISTED: Final = 4096
MAX_TEXT_BYTES: Final = 256 << 10
"""Of all schemas, patterns, word lists and the like of a request together."""
MAX_TOOLS_BYTES: Final = 1 << 20

Options = dict[str, Any]
"""By name: what the client has given, and nothing else."""

_INTEGERS: Final = {
    "min_tokens": (0, MAX_INTEGER),
    "top_k": (-1, MAX_INTEGER),
    "seed": (MIN_SEED, MAX_SEED),
    "priority": (-(2**31), 2**31),
    "n": (1, MAX_CHOICES),
    "prompt_logprobs": (0, MAX_TOP_LOGPROBS),
    "best_of": (1, MAX_CHOICES),
    "num_beams": (1, MAX_CHOICES),
    "beam_width": (1, MAX_CHOICES),
}
_NUMBERS: Final = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 1e6),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "length_penalty": (-100.0, 100.0),
    "beam_search_diversity_rate": (-100.0, 100.0),
}
_FLAGS: Final = (
    "ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "parallel_tool_calls", "use_beam_search",
)  # fmt: skip
_SIZED: Final = (
    "guided_json", "guided_regex", "guided_grammar", "guided_choice", "response_format", "bad_words", "stop",
)  # fmt: skip
_GUIDES: Final = {
    "json": "guided_json",
    "regex": "guided_regex",
    "grammar": "guided_grammar",
    "choice": "guided_choice",
}
"""By the member of vLLM's `structured_outputs`: the field that says the same."""
OPTIONS: Final = frozenset(
    {
        *_INTEGERS, *_NUMBERS, *_FLAGS, *_SIZED, "max_tokens", "max_completion_tokens", "logit_bias", "early_stopping",
        "stop_token_ids", "structured_outputs",
    }
)  # fmt: skip
"""The names that `read_options` looks at."""
TOOLS: Final = ("tools", "tool_choice", "parallel_tool_calls")
TOOL_OPTIONS: Final = ("tools", "tool_choice", "chat_template_kwargs", "add_generation_prompt")
"""Those of `read_tools`."""
_RESPONSE_FORMATS: Final = ("text", "json_object", "json_schema")


def read_options(fields: Fields, least_tokens: int = 1) -> Options:
    """What completions and chats have in common."""
    found: Options = {}
    for name, (low, high) in _INTEGERS.items():
        _take(found, name, fields.integer(name, low, high))
    for name, (least, most) in _NUMBERS.items():
        _take(found, name, fields.number(name, least, most))
    for name in _FLAGS:
        _take(found, name, fields.flag(name))
    _take(found, "max_tokens", fields.integer("max_completion_tokens", 1) or fields.integer("max_tokens", least_tokens))
    _take(found, "stop", _read_stop(fields))
    _take(found, "logit_bias", _read_logit_bias(fields))
    _take(found, "early_stopping", _read_early_stopping(fields))
    _take(found, "response_format", _read_response_format(fields))
    _read_guides(found, fields)
    _read_token_lists(found, fields)
    _check_sizes(found, _SIZED, MAX_TEXT_BYTES)
    _check_best_of(found)
    if found.get("top_p") == 0:  # nothing but the likeliest token, for which models have another word
        del found["top_p"]
        found["temperature"] = 0
    return found


def seed_of(options: Options, choice: int) -> int:
    """The seed of one of a request's choices; the smallest comes after the largest."""
    return int(MIN_SEED + (options["seed"] + choice - MIN_SEED) % (MAX_SEED - MIN_SEED + 1))


def read_tools(found: Options, fields: Fields) -> None:
    """What chats alone have: tools, and values for the chat template."""
    _take(found, "tools", _read_tools(fields))
    choice = fields.value("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice = _allow_tools(found, choice.get("allowed_tools"))
    if choice is not None:
        if type(choice) is not str and not isinstance(choice, dict):
            raise wrong_type("tool_choice", "a string or an object", choice)
        if choice not in ("none", "auto") and "tools" not in found:
            raise FieldError("tool_choice", "'tool_choice' needs 'tools'.")
        found["tool_choice"] = choice
    _take(found, "chat_template_kwargs", fields.object("chat_template_kwargs"))
    _take(found, "add_generation_prompt", fields.flag("add_generation_prompt"))
    _check_sizes(found, ("tools",), MAX_TOOLS_BYTES)
    _check_sizes(found, ("tool_choice", "chat_template_kwargs"), MAX_TEXT_BYTES)


def check_logprobs(options: Options, text_count: int) -> None:
    """Refuses more probabilities than an answer can hold; how long one text can be is the model's to say."""
    if "logprobs" not in options or "max_tokens" not in options:
        return
    top = options["top_logprobs"] if options["logprobs"] is True else options["logprobs"]
    count = text_count * options["max_tokens"] * (top + 1)
    if count > MAX_LOGPROBS:
        message = f"'logprobs' asks for {count} log probabilities in {text_count} texts; at most {MAX_LOGPROBS} can be."
        raise FieldError("logprobs", message, "invalid_value")


def _check_best_of(found: Options) -> None:
    """More than are told can be written by a beam search alone; the number of beams has one name from here on."""
    if "beam_width" in found:
        found["num_beams"] = found.pop("beam_width")
    if found.get("use_beam_search"):
        return
    if found.pop("best_of", 1) > found.get("n", 1):
        message = "A 'best_of' above 'n' is not supported without 'use_beam_search'."
        raise FieldError("best_of", message, "unsupported_parameter")


def _take(found: Options, name: str, value: Any) -> None:
    if value is not None:
        found[name] = value


def _check_sizes(found: Options, names: Sequence[str], limit_bytes: int) -> None:
    """Refuses the option with which these have more bytes together than may be."""
    size_bytes = 0
    given = [name for name in names if name in found]
    for position, name in enumerate(given):
        size_bytes += _json_bytes(name, found[name])
        if size_bytes > limit_bytes:
            others = f", together with {', '.join(given[:position])}" if position else ""
            message = f"'{name}' has {size_bytes} bytes{others}; at most {limit_bytes} are taken."
            raise FieldError(name, message, "invalid_value")


def _json_bytes(name: str, value: Any) -> int:
    try:
        return len(encode_value(name, value))
    except InvalidArgumentError as error:
        raise FieldError(name, error.message, "invalid_value") from None


def _read_stop(fields: Fields) -> list[str] | None:
    value = fields.value("stop")
    if value is None or value == []:
        return None
    if type(value) not in (str, list):
        raise wrong_type("stop", "a string or an array of strings", value)
    stops = [value] if type(value) is str else fields.array("stop", MAX_STOPS) or []
    for stop in stops:
        if type(stop) is not str:
            raise wrong_type("stop", "a string or an array of strings", stop)
        if not 0 < len(stop) <= MAX_STOP_CHARACTERS:
            raise FieldError("stop", f"A text in 'stop' has to have 1 to {MAX_STOP_CHARACTERS} characters.")
    return stops


def _read_early_stopping(fields: Fields) -> bool | str | None:
    return "never" if fields.value("early_stopping") == "never" else fields.flag("early_stopping")


def _read_logit_bias(fields: Fields) -> dict[str, float] | None:
    biases = fields.object("logit_bias")
    if biases is None:
        return None
    if len(biases) > MAX_BIASED_TOKENS:
        raise FieldError("logit_bias", f"'logit_bias' names {len(biases)} tokens; at most {MAX_BIASED_TOKENS} can be.")
    for token, bias in biases.items():
        if not (token.isascii() and token.isdigit()):
            raise FieldError("logit_bias", f"'logit_bias' has the member '{token[:40]}', which is no token id.")
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise FieldError("logit_bias", f"'logit_bias' of token {token} has to be a number between -100 and 100.")
    return dict(biases) or None


def _read_response_format(fields: Fields) -> dict[str, Any] | None:
    wanted = fields.object("response_format")
    if wanted is None:
        return None
    kind = wanted.get("type")
    if kind not in _RESPONSE_FORMATS:
        formats = ", ".join(_RESPONSE_FORMATS)
        raise FieldError("response_format.type", f"'response_format.type' has to be one of {formats}.")
    if kind == "json_schema":
        described = wanted.get("json_schema")
        if not isinstance(described, dict) or not isinstance(described.get("schema"), dict):
            raise FieldError("response_format.json_schema", "'response_format.json_schema.schema' has to be an object.")
    return None if kind == "text" else wanted


def _read_guides(found: Options, fields: Fields) -> None:
    fields = _with_structured_outputs(fields)
    schema = fields.value("guided_json")
    if schema is not None and type(schema) is not str and not isinstance(schema, dict):
        raise wrong_type("guided_json", "a JSON schema", schema)
    _take(found, "guided_json", schema)
    _take(found, "guided_regex", fields.text("guided_regex"))
    _take(found, "guided_grammar", fields.text("guided_grammar"))
    choices = fields.array("guided_choice", MAX_LISTED)
    if choices == []:
        raise FieldError("guided_choice", "'guided_choice' has to have at least one text to choose.", "invalid_value")
    for choice in choices or ():
        if type(choice) is not str:
            raise FieldError("guided_choice", "'guided_choice' has to be an array of strings.", "invalid_type")
    _take(found, "guided_choice", choices)


def _with_structured_outputs(fields: Fields) -> Fields:
    """vLLM's newer way to say `guided_json` and the like: one object with one of them."""
    wanted = fields.object("structured_outputs")
    if not wanted:
        return fields
    given = {name: value for name, value in wanted.items() if value is not None}
    unknown = [name for name in given if name not in _GUIDES]
    if unknown:
        where = f"structured_outputs.{unknown[0]}"
        raise FieldError(
            where, f"'{where}' is not supported; use one of {', '.join(_GUIDES)}.", "unsupported_parameter"
        )
    return Fields({_GUIDES[name]: value for name, value in given.items()})


def _read_token_lists(found: Options, fields: Fields) -> None:
    stop_ids = fields.array("stop_token_ids", MAX_LISTED)
    if stop_ids is not None and not is_token_ids(stop_ids):
        raise FieldError("stop_token_ids", "'stop_token_ids' has to be an array of token ids.", "invalid_type")
    _take(found, "stop_token_ids", stop_ids)
    words = fields.array("bad_words", MAX_LISTED)
    if words is not None and not all(type(word) is str for word in words):
        raise FieldError("bad_words", "'bad_words' has to be an array of strings.", "invalid_type")
    _take(found, "bad_words", words)


def _allow_tools(found: Options, allowed: Any) -> str:
    """Leaves those tools that an answer may call; whether it has to call one."""
    where = "tool_choice.allowed_tools"
    if not isinstance(allowed, dict) or allowed.get("mode") not in ("auto", "required"):
        raise FieldError(f"{where}.mode", f"'{where}.mode' has to be 'auto' or 'required'.", "invalid_value")
    given = allowed["tools"] if type(allowed.get("tools")) is list else []
    functions = [entry.get("function") for entry in given if isinstance(entry, dict)]
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    tools = {tool["function"]["name"]: tool for tool in found.get("tools", ())}
    if not names or len(names) != len(given) or any(type(name) is not str or name not in tools for name in names):
        raise FieldError(f"{where}.tools", f"'{where}.tools' has to name some of 'tools'.", "invalid_value")
    found["tools"] = [tool for name, tool in tools.items() if name in names]
    return str(allowed["mode"])


def _read_tools(fields: Fields) -> list[Any] | None:
    tools = fields.array("tools", MAX_TOOLS)
    for position, tool in enumerate(tools or ()):
        kind = tool.get("type", "function") if isinstance(tool, dict) else "function"
        if kind != "function":
            where = f"tools[{position}].type"
            raise FieldError(where, f"'{where}' has to be 'function'.", "unsupported_parameter")
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or type(function.get("name")) is not str or not function["name"]:
            where = f"tools[{position}].function.name"
            raise FieldError(where, f"'{where}' is required.", "missing_required_parameter")
    return tools or None
