"""How a request wants its tokens chosen: options by the names that clients know, checked, in the engine's form."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.core.reading import json_levels
from trireme.llm.sampling_params import (
    MAX_BAD_WORDS,
    MAX_SEED,
    MAX_TOP_LOGPROBS,
    MIN_SEED,
    Grammar,
    SamplingError,
    SamplingParams,
)
from trireme.llm.tokenizer.port import Tokenizer

MAX_ID = 2**31
"""Token ids are smaller."""
MAX_WORDS_SIZE = 256 * 1024
MAX_TOKENS = frozenset({"max_tokens", "max_new_tokens", "max_completion_tokens"})
"""The names of how much to write."""
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
    "length_penalty": ("length_penalty", float),
    "beam_search_diversity_rate": ("diversity_rate", float),
    "prompt_logprobs": ("prompt_logprobs", int),
    "speculation": ("speculates", bool),
}
SAMPLING_OPTIONS = _PLAIN.keys() | {
    "stop", "stop_token_ids", "logit_bias", "bad_words", "logprobs", "top_logprobs", "skip_special_tokens",
    "use_beam_search", "best_of", "num_beams", "beam_width", "early_stopping",
}  # fmt: skip


def read_params(
    options: Mapping[str, Any], tokenizer: Tokenizer, grammar: Grammar | None, shown_ids: frozenset[int]
) -> SamplingParams:
    """Raises InvalidRequestError or SamplingError with the option's name."""
    _refuse(options)
    _check_seed(options.get("seed"))
    found: dict[str, Any] = {"grammar": grammar, "shown_ids": shown_ids}
    for key, (field, kind) in _PLAIN.items():
        if key in options:
            found[field] = number(key, options[key], kind)
    if found.get("top_k", 0) == -1 or found.get("top_k", 0) >= MAX_ID:
        found["top_k"] = 0  # -1 is "all" elsewhere
    found["stop"] = tuple(_strings("stop", options.get("stop", ())))
    found["stop_ids"] = _stop_ids(options.get("stop_token_ids", ()))
    found["logit_bias"] = _bias(options.get("logit_bias", {}))
    found["bad_words"] = _bad_words(_strings("bad_words", options.get("bad_words", ())), tokenizer)
    found["logprobs"] = _logprobs(options)
    found |= read_beams(options, found.get("choices", 1))
    return SamplingParams(**found)


def _logprobs(options: Mapping[str, Any]) -> int | None:
    wanted, top = options.get("logprobs"), options.get("top_logprobs")
    if wanted is None or wanted is False:
        return None
    given = 0 if wanted is True else number("logprobs", wanted, int)
    name, count = ("logprobs", given) if top is None else ("top_logprobs", number("top_logprobs", top, int))
    if not 0 <= count <= MAX_TOP_LOGPROBS:
        raise InvalidRequestError(f"'{name}' must be between 0 and {MAX_TOP_LOGPROBS}, found {count}")
    return count


def read_beams(options: Mapping[str, Any], choices: int) -> dict[str, Any]:
    """How many beams are followed, under the names that transformers, vLLM and TensorRT-LLM have for it."""
    widths = {key: number(key, options[key], int) for key in ("num_beams", "beam_width", "best_of") if key in options}
    for key, value in widths.items():
        if value < 1:
            raise SamplingError(f"'{key}' must be at least 1, found {value}")
    is_asked = number("use_beam_search", options.get("use_beam_search", False), bool)
    best_of = widths.pop("best_of", choices)
    if not is_asked and best_of > choices:
        raise InvalidRequestError(f"'best_of' must be {choices}, as 'n' is, without 'use_beam_search'; found {best_of}")
    if not is_asked:
        best_of = 0
    width = max([best_of, *widths.values()])
    found: dict[str, Any] = {"early_stopping": _early_stopping(options.get("early_stopping", False))}
    if width > 1 or is_asked:
        found["beams"] = width
        if "beam_width" in widths and "n" not in options:
            found["choices"] = width  # who says it so gets all of them
    return found


def _early_stopping(given: Any) -> bool | None:
    if given == "never":
        return None
    try:
        return bool(number("early_stopping", given, bool))
    except InvalidRequestError:
        raise InvalidRequestError(f"'early_stopping' must be true, false or 'never', found {_shown(given)}") from None


def _stop_ids(given: Any) -> tuple[int, ...]:
    if isinstance(given, str):
        given = read_json("stop_token_ids", given)
    if not isinstance(given, list | tuple):
        raise InvalidRequestError(f"'stop_token_ids' must be a list of token ids, found {_shown(given)}")
    return tuple(number("stop_token_ids", entry, int) for entry in given)


def _bias(given: Any) -> dict[int, float]:
    if isinstance(given, str):
        given = read_json("logit_bias", given)
    if not isinstance(given, Mapping):
        raise InvalidRequestError("'logit_bias' must be an object of token ids with numbers")
    try:
        return {int(token): float(value) for token, value in given.items()}
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequestError("'logit_bias' must be an object of token ids with numbers") from None


def _bad_words(words: list[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each as it is written at a text's beginning and inside of it."""
    most = MAX_BAD_WORDS // 2
    if len(words) > most:
        raise InvalidRequestError(f"'bad_words' has {len(words)} words; at most {most} are taken")
    size = sum(map(len, words))
    if size > MAX_WORDS_SIZE:
        raise InvalidRequestError(f"'bad_words' has {size} characters; at most {MAX_WORDS_SIZE} are taken")
    found = {tuple(tokenizer.encode(form, add_special=False)) for word in words for form in (word, f" {word}")}
    return tuple(sorted(entry for entry in found if entry))


def _strings(name: str, values: Any) -> list[str]:
    if isinstance(values, str):
        return [values]
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InvalidRequestError(f"'{name}' must be a string or a list of strings")
    return list(values)


def number(name: str, value: Any, kind: Callable[[Any], Any]) -> Any:
    """The option's value as this kind; raises InvalidRequestError."""
    if kind is bool:
        if isinstance(value, bool | int):
            return bool(value)
        raise InvalidRequestError(f"'{name}' must be true or false, found {_shown(value)}")
    try:
        if isinstance(value, bool):
            raise ValueError
        number = kind(value)
        if isinstance(value, float) and value != number:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        wanted = "a whole number" if kind is int else "a number"
        raise InvalidRequestError(f"'{name}' must be {wanted}, found {_shown(value)}") from None
    return number


def read_json(name: str, text: str) -> Any:
    """The value that a text stands for; raises InvalidRequestError."""
    try:
        return json_levels.read_json(text)
    except json_levels.DeepJsonError:
        raise InvalidRequestError(f"'{name}' is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequestError(f"'{name}' is no JSON: {error}") from None


def _refuse(options: Mapping[str, Any]) -> None:
    """Options that are known, and cannot be followed."""
    if not number("skip_special_tokens", options.get("skip_special_tokens", True), bool):
        raise InvalidRequestError(
            "'skip_special_tokens' must be true: texts are given without special tokens; ask for token_ids"
        )


def _check_seed(given: Any) -> None:
    """Whole numbers that JSON's readers could not hold come rounded, and maybe to one that could be."""
    if isinstance(given, float) and not MIN_SEED < given < MAX_SEED:
        raise SamplingError(f"'seed' must be between {MIN_SEED} and {MAX_SEED}, found {given:g}")


def _shown(value: Any) -> str:
    """A wrong value as an error tells it."""
    return reprlib.repr(value)
