"""One answer of a chat: its text in, its content, reasoning and calls of tools out."""

from __future__ import annotations

from trireme.llm.chat.events import Content, Event
from trireme.llm.chat.reasoning import ReasoningSplitter
from trireme.llm.chat.tool_parser import ToolParser


class ChatParser:
    """First the reasoning is split off, then calls are looked for in what is left."""

    def __init__(self, reasoning: ReasoningSplitter | None = None, tools: ToolParser | None = None) -> None:
        self._reasoning = reasoning
        self._tools = tools

    def feed(self, text: str) -> list[Event]:
        """What is certain by now."""
        if not text:
            return []
        return self._find_calls(self._reasoning.feed(text) if self._reasoning is not None else [Content(text)])

    def finish(self, is_cut: bool = False) -> list[Event]:
        """What is left, when no more text comes; `is_cut`: the model would have written more."""
        events = self._find_calls(self._reasoning.finish(is_cut) if self._reasoning is not None else [])
        return events + (self._tools.finish(is_cut) if self._tools is not None else [])

    def _find_calls(self, events: list[Event]) -> list[Event]:
        if self._tools is None:
            return events
        found: list[Event] = []
        for event in events:
            found += self._tools.feed(event.text) if isinstance(event, Content) else [event]
        return found
