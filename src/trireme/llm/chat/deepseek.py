"""The formats of DeepSeek V3 and R1, and of V3.1: calls between tags of their own, a name and JSON in each."""

from __future__ import annotations

from functools import partial

from trireme.llm.chat.json_scanner import JsonValue
from trireme.llm.chat.tool_parser import ToolParser

ALL_OPENING = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
ALL_CLOSING = "<\uff5ctool\u2581calls\u2581end\uff5c>"
OPENING = "<\uff5ctool\u2581call\u2581begin\uff5c>"
CLOSING = "<\uff5ctool\u2581call\u2581end\uff5c>"
SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"


class DeepSeekParser(ToolParser):
    """V3 and R1 write `function`, the separator, the name and a block of JSON; V3.1 the name, the separator, JSON."""

    def _begin(self) -> bool:
        found = self._tell_until(ALL_OPENING, OPENING)
        return bool(found) and self._go(self._name if found == OPENING else self._between)

    def _between(self) -> bool:
        found = self._skip_until(OPENING, ALL_CLOSING)
        return bool(found) and self._go(self._name if found == OPENING else self._begin)

    def _name(self) -> bool:
        kind, separator, rest = self._buffer.partition(SEPARATOR)
        head, brace, arguments = rest.partition("{")
        if not separator or not brace:
            return False
        self._buffer = brace + arguments
        first_line = head.strip().partition("\n")[0].strip()
        self._start_call(first_line if first_line and kind.strip() == "function" else kind.strip())
        return self._go(partial(self._read_arguments, JsonValue(), self._close))

    def _close(self) -> bool:
        found = self._skip_until(CLOSING, OPENING, ALL_CLOSING)
        if not found:
            return False
        return self._go({CLOSING: self._between, OPENING: self._name, ALL_CLOSING: self._begin}[found])
