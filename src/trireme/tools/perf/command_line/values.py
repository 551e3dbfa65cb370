"""Values of single flags: ranges, shapes, parameters; each raises UsageError with the flag's name."""

from __future__ import annotations

import math
from pathlib import Path

from trireme.tools.perf.errors import UsageError
from trireme.tools.perf.options import Range, RequestParameter

PARAMETER_KINDS = ("bool", "int", "string")


def whole_number(flag: str, text: str, least: int = 0) -> int:
    """A whole number that is not less than `least`."""
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"Failed to parse {flag}. Invalid value provided: {text}") from None
    if value < least:
        bound = f">= {least}" if least != 1 else "> 0"
        raise UsageError(f"Failed to parse {flag}. The value must be {bound}.")
    return value


def number(flag: str, text: str, least: float = 0.0) -> float:
    """A finite number that is not less than `least`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"Failed to parse {flag}. Invalid value provided: {text}")
    if value < least:
        raise UsageError(f"Failed to parse {flag}. The value must be >= {least}.")
    return value


def one_of(flag: str, text: str, choices: tuple[str, ...]) -> str:
    """The text, where it is one of the choices."""
    if text in choices:
        return text
    names = ", ".join(f"'{choice}'" for choice in choices[:-1])
    raise UsageError(
        f"Failed to parse {flag}. Unsupported type provided: '{text}'. "
        f"The available options are {names} or '{choices[-1]}'."
    )


def load_range(flag: str, text: str, *, is_whole: bool) -> Range:
    """`start:end:step`, of which the last two may be missing."""
    parts = text.split(":")
    if len(parts) > 3:
        raise UsageError(f"Failed to parse {flag}. The value does not match <start:end:step>.")
    kind = whole_number if is_whole else number
    return Range(*(kind(flag, part) for part in parts))


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`name:1,2,3`; a name may have colons itself."""
    name, colon, dims = text.rpartition(":")
    if not colon:
        raise UsageError("Failed to parse --shape. There must be a colon after input name.")
    try:
        values = tuple(int(dim) for dim in dims.split(","))
    except ValueError:
        raise UsageError(f"Failed to parse --shape. Invalid value provided: {text}") from None
    if any(value <= 0 for value in values):
        raise UsageError("Failed to parse --shape. The dimensions of input tensor must be > 0.")
    return name, values


def request_parameter(text: str) -> RequestParameter:
    """`name:value:type`."""
    parts = text.split(":")
    if len(parts) != 3:
        raise UsageError("Failed to parse --request-parameter. The value does not match <name:value:type>.")
    name, value, kind = parts[0], parts[1], parts[2].lower()
    if kind not in PARAMETER_KINDS:
        raise UsageError(f"Failed to parse --request-parameter. Unsupported type '{kind}': bool, int or string.")
    if kind == "int":
        whole_number("--request-parameter", value, least=-(2**63))
    return RequestParameter(name, value, kind)


def header(text: str) -> tuple[str, str]:
    """`Header:Value`."""
    name, colon, value = text.partition(":")
    if not colon or not name or "\n" in text or "\r" in text:
        raise UsageError(f"Failed to parse -H. The header must be specified as 'Header:Value', not '{text}'.")
    return name.strip(), value.strip()


def composing_models(text: str) -> tuple[tuple[str, str], ...]:
    """`modelA:3,modelB`: names, each with its version or nothing."""
    models = []
    for part in "".join(text.split()).split(","):
        if part:
            name, _, version = part.partition(":")
            models.append((name, version))
    return tuple(models)


def existing_file(flag: str, text: str) -> str:
    """A path at which there is a file."""
    if not Path(text).is_file():
        raise UsageError(f"Failed to parse {flag}. The value must be a valid file path: '{text}' is not.")
    return text


def id_range(text: str) -> tuple[int, int | None]:
    """`start:end` of sequence ids: the first one, and how many there are."""
    parts = text.split(":")
    if len(parts) > 2:
        raise UsageError("Failed to parse --sequence-id-range. The value does not match <start:end>.")
    values = [whole_number("--sequence-id-range", part) for part in parts]
    if len(values) == 1:
        return max(1, values[0]), None
    if values[0] > values[1]:
        raise UsageError("Failed to parse --sequence-id-range. The 'end' value must be greater than 'start' value.")
    first = max(1, values[0])
    return first, values[1] - first
