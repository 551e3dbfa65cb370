"""How the text of an option becomes a value: numbers, booleans, choices, pairs and repeated names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from trireme.config.options.option import OptionError, ValueKind
from trireme.config.options.re2 import to_python

INT32_MAX = 2**31 - 1
_MOST_DIGITS = 18  # fit into 64 bits

_TRUE = ("true", "on", "1")
_FALSE = ("false", "off", "0")


def parse_bool(text: str, flag: str) -> bool:
    """true, on or 1; false, off or 0; in any case."""
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise OptionError(f"invalid value for bool option: {text}", flag)


def parse_int(text: str, flag: str) -> int:
    """A whole decimal number, nothing before or after it."""
    if re.fullmatch(r"[+-]?\d+", text) is None:
        raise OptionError(f"Invalid option value. Got {text}", flag)
    if len(text.lstrip("+-").lstrip("0")) > _MOST_DIGITS:  # what nobody means, and no clock or file size has
        raise OptionError(f"value is out of range. Got {text:.{_MOST_DIGITS}}...", flag)
    return int(text)


def parse_float(text: str, flag: str) -> float:
    """A finite decimal number."""
    try:
        value = float(text)
    except ValueError:
        raise OptionError(f"Invalid option value. Got {text}", flag) from None
    if value != value or value in (float("inf"), float("-inf")):
        raise OptionError(f"Invalid option value. Got {text}", flag)
    return value


def parse_pattern(text: str, flag: str) -> str:
    """A regular expression of RE2 as one of Python's, checked now and not at the first request."""
    try:
        return to_python(text)
    except re.error as error:
        raise OptionError(f"invalid regular expression '{text}': {error}", flag) from None


def integer(minimum: int | None = None, maximum: int | None = None) -> ValueKind:
    """A whole number within the bounds, which belong to it."""

    def read(text: str, flag: str) -> int:
        value = parse_int(text, flag)
        if minimum is not None and value < minimum:
            raise OptionError(f"value must be at least {minimum}. Got {text}", flag)
        if maximum is not None and value > maximum:
            raise OptionError(f"value must be at most {maximum}. Got {text}", flag)
        return value

    return ValueKind("integer", read)


def _or_auto(kind: ValueKind) -> ValueKind:
    """The same, or `auto`, which is None: the server chooses."""

    def read(text: str, flag: str) -> Any:
        return None if text == "auto" else kind.read(text, flag)

    return ValueKind(f"{kind.placeholder}|auto", read, none_text="auto")


def choice(*allowed: str) -> ValueKind:
    """One of a few words."""

    def read(text: str, flag: str) -> str:
        if text not in allowed:
            named = ", ".join(f"'{word}'" for word in allowed)
            raise OptionError(f"invalid argument for --{flag}: '{text}'. Options are {named}", flag)
        return text

    return ValueKind("string", read)


def _read_text(text: str, flag: str) -> str:
    return text


def _read_required_text(text: str, flag: str) -> str:
    if not text:
        raise OptionError(f"Error: empty argument for --{flag}", flag)
    return text


def _read_header_name(text: str, flag: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", text) is None:
        raise OptionError(f"'{text}' is not the name of a header", flag)
    return text


def _read_verbosity(text: str, flag: str) -> int:
    lowered = text.lower()
    if lowered in ("true", "on"):
        return 1
    if lowered in ("false", "off"):
        return 0
    return max(0, parse_int(text, flag))


def _gather_tuple(values: Sequence[Any], flag: str) -> tuple[Any, ...]:
    return tuple(values)


def split_pair(text: str, separator: str, flag: str) -> tuple[str, str]:
    """`<first><separator><second>`, cut at the first separator."""
    first, found, second = text.partition(separator)
    if not found:
        raise OptionError(
            "Cannot parse pair option due to incorrect number of inputs."
            f"--<pair option> argument requires format <first>{separator}<second>. Found: {text}",
            flag,
        )
    return first, second


def device_pairs(read_second: Callable[[str, str], Any], placeholder: str) -> ValueKind:
    """`<device>:<value>`, repeated, as a mapping by device."""

    def read(text: str, flag: str) -> tuple[int, Any]:
        first, second = split_pair(text, ":", flag)
        return parse_int(first, flag), read_second(second, flag)

    def gather(values: Sequence[tuple[int, Any]], flag: str) -> dict[int, Any]:
        return dict(values)

    return ValueKind(placeholder, read, gather)


def _read_port_range(text: str, flag: str) -> tuple[int, int]:
    first, second = split_pair(text, "-", flag)
    return parse_int(first, flag), parse_int(second, flag)


def _read_fraction(text: str, flag: str) -> float:
    value = parse_float(text, flag)
    if not 0.0 <= value <= 1.0:
        raise OptionError(f"expects limit fraction to be in range [0.0, 1.0], got {value:f}", flag)
    return value


def _no_text(text: str, flag: str) -> bool:
    return parse_bool(text, flag)


BOOLEAN = ValueKind("boolean", parse_bool)
SWITCH = ValueKind("", _no_text, takes_value=False)
TEXT = ValueKind("string", _read_text)
REQUIRED_TEXT = ValueKind("string", _read_required_text)
HEADER_NAME = ValueKind("string", _read_header_name)
TEXTS = ValueKind("string", _read_required_text, _gather_tuple)
PATTERN = ValueKind("regular expression", parse_pattern)
INTEGER = integer()
COUNT = integer(0)
POSITIVE = integer(1)
WHOLE_SECONDS = integer(0, INT32_MAX)
PROCESSES_OR_AUTO = _or_auto(integer(1, 64))
PORT = integer(0, 65535)
NUMBER = ValueKind("float", parse_float)
VERBOSITY = ValueKind("integer", _read_verbosity)
DEVICE_SIZES = device_pairs(parse_int, "<integer>:<integer>")
DEVICE_FRACTIONS = device_pairs(_read_fraction, "<device_id>:<fraction>")
PORT_RANGE = ValueKind("<integer>-<integer>", _read_port_range)
