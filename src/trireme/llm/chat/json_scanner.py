"""Reads JSON that comes piece by piece: where a value ends, and what a call of a tool says."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from enum import Enum, auto

_ARGUMENTS = ("arguments", "parameters")
_OTHERS = ("type", "id")
_TYPE = "function"
_SPACES = " \t\r\n"


class JsonValue:
    """Finds the end of one value."""

    def __init__(self) -> None:
        self.is_done = False
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self._is_begun = False

    def read(self, text: str, at: int) -> int:
        """Where in the text the value ends, or the text's end where it goes on."""
        while at < len(text) and not self.is_done:
            char = text[at]
            if self._is_in_string:
                at += 1
                self._read_string(char)
            elif self._is_begun and not self._depth and char in f"{_SPACES},}}]":
                self.is_done = True
            else:
                at += 1
                self._read_outside(char)
        return at

    def _read_string(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._is_in_string = False
            self.is_done = not self._depth

    def _read_outside(self, char: str) -> None:
        self._is_begun = True
        if char == '"':
            self._is_in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.is_done = self._depth <= 0


class _Place(Enum):
    OPENING = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    NEXT = auto()
    DONE = auto()
    FAILED = auto()


class ToolCallScanner:
    """Reads one `{"name": ..., "arguments": ...}`, and tells of the arguments while they are written."""

    def __init__(
        self,
        on_start: Callable[[str], None],
        on_arguments: Callable[[str], None],
        *,
        accepts: Callable[[str], bool] = lambda name: True,
        needs_arguments: bool = False,
    ) -> None:
        """`accepts`: whether a name is a tool's; another object is no call, nor one without arguments where they are
        needed.
        """
        self._on_start = on_start
        self._on_arguments = on_arguments
        self._accepts = accepts
        self._needs_arguments = needs_arguments
        self._place = _Place.OPENING
        self._value = JsonValue()
        self._raw = ""
        self._key = ""
        self._name: str | None = None
        self._early = ""
        """Arguments that came before the name."""
        self._has_arguments = False
        self._is_doubtful = False
        """Whether a value was none that a call without a tag around it begins with."""
        self.is_started = False

    @property
    def is_done(self) -> bool:
        return self._place is _Place.DONE

    @property
    def is_failed(self) -> bool:
        """Whether what was read is no call. Where one was started, it is left unfinished."""
        return self._place is _Place.FAILED

    def looks_begun(self, names: Collection[str]) -> bool:
        """Whether what was read, should nothing follow, is rather the beginning of a call of one of these tools than
        that of other JSON: its name, its arguments, or no more than the type before them. No names: any tool."""
        if self._name is not None or self._has_arguments:
            return True
        if self._place is _Place.KEY:
            keys = ("name", *_ARGUMENTS, "type")
            return not self._is_doubtful and any(f'"{key}"'.startswith(self._raw) for key in keys)
        if self._place not in (_Place.COLON, _Place.VALUE):
            return not self._is_doubtful
        if self._key == "name":
            return not names or any(f'"{name}"'.startswith(self._raw) for name in names)
        return self._key == "type" and f'"{_TYPE}"'.startswith(self._raw)

    def read(self, text: str) -> int:
        """How much of the text belongs to the call."""
        at = 0
        while at < len(text) and self._place not in (_Place.DONE, _Place.FAILED):
            at = self._step(text, at)
        return at

    def _step(self, text: str, at: int) -> int:
        char = text[at]
        if self._place in (_Place.KEY, _Place.VALUE) and self._raw:
            return self._read_value(text, at)
        if char in _SPACES:
            return at + 1
        if self._place is _Place.OPENING:
            self._place = _Place.KEY if char == "{" else _Place.FAILED
        elif self._place is _Place.COLON:
            self._place = _Place.VALUE if char == ":" else _Place.FAILED
        elif char == "}" and self._place in (_Place.NEXT, _Place.KEY):
            self._end()
        elif self._place is _Place.NEXT:
            self._place = _Place.KEY if char == "," else _Place.FAILED
        elif self._place is _Place.KEY and char != '"':
            self._place = _Place.FAILED
        else:
            self._value, self._raw = JsonValue(), ""
            return self._read_value(text, at)
        return at + 1

    def _read_value(self, text: str, at: int) -> int:
        end = self._value.read(text, at)
        is_streamed = self._place is _Place.VALUE and self._key in _ARGUMENTS and (self._raw or text[at])[0] == "{"
        self._raw += text[at:end]
        if is_streamed:
            self._tell_arguments(text[at:end])
        if self._value.is_done:
            raw, self._raw = self._raw, ""
            self._take(raw, is_streamed)
        return end

    def _take(self, raw: str, is_streamed: bool) -> None:
        """A key or a value is whole."""
        try:
            found = json.loads(raw, strict=False)
        except (ValueError, RecursionError):
            found, is_sound = None, is_streamed
        else:
            is_sound = True
        if self._place is _Place.KEY:
            self._key = str(found)
            is_sound = is_sound and (self.is_started or self._key in ("name", *_ARGUMENTS, *_OTHERS))
            self._place = _Place.COLON if is_sound else _Place.FAILED
            if self._key in _ARGUMENTS and is_sound:
                self._has_arguments = True
                self._start()
            return
        self._place = _Place.NEXT if is_sound else _Place.FAILED
        self._is_doubtful |= self._key in _OTHERS and (self._key, found) != ("type", _TYPE)
        if self._key == "name" and not self.is_started:
            self._take_name(found)
        elif self._key in _ARGUMENTS and not is_streamed:
            self._tell_arguments(found if isinstance(found, str) else raw if found is not None else "{}")

    def _take_name(self, found: object) -> None:
        if not isinstance(found, str) or not found or not self._accepts(found):
            self._place = _Place.FAILED
            return
        self._name = found
        if self._has_arguments:
            self._start()

    def _start(self) -> None:
        if self._name is not None and not self.is_started:
            self.is_started = True
            self._on_start(self._name)
            if self._early:
                self._on_arguments(self._early)

    def _tell_arguments(self, text: str) -> None:
        if self.is_started:
            self._on_arguments(text)
        else:
            self._early += text

    def _end(self) -> None:
        if self._name is None or (self._needs_arguments and not self._has_arguments):
            self._place = _Place.FAILED
            return
        self._place = _Place.DONE
        if not self.is_started:
            self._start()
            self._on_arguments("{}")
