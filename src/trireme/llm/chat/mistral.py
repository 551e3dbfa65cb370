"""The formats of Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": ...}]`, and later `[TOOL_CALLS]name[ARGS]{...}`."""

from __future__ import annotations

import secrets
import string
from functools import partial

from trireme.llm.chat.json_scanner import JsonValue
from trireme.llm.chat.tool_parser import ToolParser

OPENING = "[TOOL_CALLS]"
ARGUMENTS = "[ARGS]"
_CALL_ID = "[CALL_ID]"


def mistral_call_id() -> str:
    """Nine letters and digits: the chat templates refuse others."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


class MistralParser(ToolParser):
    """Calls stand behind the content and a tag that is one token."""

    def _begin(self) -> bool:
        return bool(self._tell_until(OPENING)) and self._go(self._kind)

    def _kind(self) -> bool:
        self._skip(" \t\r\n")
        if not self._buffer:
            return False
        if self._buffer.startswith("["):
            self._take(1)
            return self._go(self._item)
        return self._go(self._named)

    def _item(self) -> bool:
        self._skip(" \t\r\n,")
        if not self._buffer:
            return False
        if self._buffer.startswith("{"):
            self._expect_call("")
            return self._go(self._inside)
        self._take(self._buffer.startswith("]"))
        return self._go(self._begin)

    def _inside(self) -> bool:
        return self._read_call(self._item, self._plain)

    def _named(self) -> bool:
        """A name, its arguments behind it."""
        name, brace, rest = self._buffer.partition("{")
        if not brace:
            return False
        self._buffer = brace + rest
        self._start_call(name.partition(ARGUMENTS)[0].partition(_CALL_ID)[0].strip())
        return self._go(partial(self._read_arguments, JsonValue(), self._begin))
