"""The format of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

from trireme.llm.chat.tool_parser import ToolParser

OPENING = "<tool_call>"
CLOSING = "</tool_call>"


class HermesParser(ToolParser):
    """Calls stand behind the content, each between its own tags."""

    def _begin(self) -> bool:
        if not self._tell_until(OPENING):
            return False
        self._expect_call(OPENING)
        return self._go(self._inside)

    def _inside(self) -> bool:
        return self._read_call(self._behind, self._no_call)

    def _behind(self) -> bool:
        found = self._skip_until(CLOSING, OPENING)
        if found == OPENING:  # the model forgot to close the call before
            self._expect_call(OPENING)
            return self._go(self._inside)
        return bool(found) and self._go(self._begin)

    def _no_call(self) -> bool:
        """Tells the tag as content, so that it is not found again."""
        self._tell(self._take(len(OPENING)))
        return self._go(self._begin)
