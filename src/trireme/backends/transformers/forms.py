"""What a task takes and gives: its tensors, and the options that a request or a configuration may set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.core.reading.json_levels import read_json

WHOLE, NUMBER, FLAG, TEXT, TEXTS = "whole", "number", "flag", "text", "texts"
_SHOWN_CHARACTERS = 80
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class TensorForm:
    """An input or output, without the batch dimension."""

    name: str
    data_type: str
    dims: tuple[int, ...] = (1,)
    is_optional: bool = False
    other_types: tuple[str, ...] = ()
    """What a configuration may declare it as instead: an array."""
    array_dims: tuple[int, ...] = ()
    """The array's."""


@dataclass(frozen=True, slots=True)
class Option:
    """A value that a request gives as an input or as a parameter, and a configuration as a parameter."""

    name: str
    kind: str
    is_input: bool = False
    """Whether it is declared as an optional input; otherwise it travels among the request's parameters only."""
    aliases: tuple[str, ...] = ()

    def tensor_form(self) -> TensorForm:
        """The optional input."""
        return TensorForm(self.name, "TYPE_STRING", (-1,) if self.kind == TEXTS else (1,), is_optional=True)

    def value_of(self, given: Any) -> Any:
        """The value as its kind; raises RequestError where it is not one."""
        try:
            return _CONVERSIONS[self.kind](given)
        except (TypeError, ValueError, OverflowError):
            raise RequestError(f"'{self.name}' must be {_WORDS[self.kind]}, found {_shown(given)}") from None


@dataclass(frozen=True, slots=True)
class TaskForm:
    """One task as configurations and clients see it."""

    inputs: tuple[TensorForm, ...]
    outputs: tuple[TensorForm, ...]
    runner: str
    """Module of this package and class that does the work, as `module:Class`."""
    options: tuple[Option, ...] = ()
    batch_delay_us: int = 0
    """How long a batch waits for company where the configuration does not say; worth it where a batch takes long."""

    def all_inputs(self) -> tuple[TensorForm, ...]:
        """The inputs, and the options that are declared as such."""
        return (*self.inputs, *(option.tensor_form() for option in self.options if option.is_input))


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _whole(given: Any) -> int:
    number = int(given) if isinstance(given, (str, int)) else float(given)
    if number != int(number):
        raise ValueError
    return int(number)


def _flag(given: Any) -> bool:
    text = str(given).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ValueError
    return text in _TRUE


def _text(given: Any) -> str:
    return given.decode() if isinstance(given, bytes) else str(given)


def _texts(given: Any) -> tuple[str, ...]:
    """Several texts: a list, the JSON of one, or a single text."""
    if isinstance(given, (list, tuple)):
        return tuple(_text(entry) for entry in given)
    text = _text(given)
    if text.lstrip().startswith("["):
        return tuple(str(entry) for entry in read_json(text))
    return (text,)


_CONVERSIONS: Mapping[str, Any] = {WHOLE: _whole, NUMBER: float, FLAG: _flag, TEXT: _text, TEXTS: _texts}
_WORDS = {
    WHOLE: "a whole number",
    NUMBER: "a number",
    FLAG: "true or false",
    TEXT: "a text in UTF-8",
    TEXTS: "a text, or a list of texts as JSON",
}
