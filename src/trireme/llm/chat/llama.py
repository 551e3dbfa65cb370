"""The format of Llama 3.1 and later: an answer that is `{"name": ..., "parameters": {...}}`, maybe behind a tag."""

from __future__ import annotations

from trireme.llm.chat.tool_parser import ToolParser

TAG = "<|python_tag|>"


class LlamaParser(ToolParser):
    """Other JSON than a call of a known tool is content; so is the code that may follow the tag."""

    def _is_call_begun(self) -> bool:
        """Other JSON, whose name is none of a tool, may begin like a call."""
        if self._state == self._text:
            return bool(self._buffer)
        return self._call is None or self._call.looks_begun(self._names)

    def _begin(self) -> bool:
        start = self._buffer.lstrip()
        if not start and not self._is_last:
            return False
        if start.startswith("{"):
            self._expect_call("", is_strict=True)
            return self._go(self._inside)
        return self._go(self._text)

    def _text(self) -> bool:
        if not self._tell_until(TAG):
            return False
        self._expect_call("", is_strict=True)
        return self._go(self._inside)

    def _inside(self) -> bool:
        return self._read_call(self._behind, self._plain)

    def _behind(self) -> bool:
        """Several calls are parted by semicolons."""
        start = self._buffer.lstrip(" \t\r\n;,")
        if not start:
            self._buffer = "" if self._is_last else self._buffer
            return False
        self._buffer = start
        if not start.startswith("{"):
            return self._go(self._text)
        self._expect_call("", is_strict=True)
        return self._go(self._inside)
