"""One choice of a chat as OpenAI's objects: deltas while it is written, the message in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trireme.llm.chat.chat_parser import ChatParser
from trireme.llm.chat.events import CallArguments, CallStart, Content, Event, Reasoning

_HALF = "\ufffd"
"""What is decoded of a character that was cut off: it belongs to no text, and may hide the beginning of a tag."""


class ChatMessage:
    """Takes the text of a choice as it comes."""

    def __init__(self, parser: ChatParser) -> None:
        self._parser = parser
        self._is_first = True
        self._content = ""
        self._reasoning = ""
        self._calls: list[dict[str, Any]] = []

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def add(self, text: str, is_last: bool, is_cut: bool = False) -> dict[str, Any]:
        """The delta of a piece, empty where nothing is certain yet; `is_cut`: the model would have written more."""
        events = self._parser.feed(text.rstrip(_HALF) if is_cut else text)
        if is_last:
            events = events + self._parser.finish(is_cut)
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if self._is_first else {}
        self._is_first = False
        self._gather(events, delta)
        return delta

    def message(self) -> dict[str, Any]:
        """All of it."""
        found: dict[str, Any] = {"role": "assistant", "content": self._content}
        if self._calls:
            found["content"] = self._content or None
            found["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in self._calls
            ]
        if self._reasoning:
            found["reasoning_content"] = self._reasoning
        return found

    def _gather(self, events: Sequence[Event], delta: dict[str, Any]) -> None:
        new_calls: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, Content):
                self._content += event.text
                delta["content"] = delta.get("content", "") + event.text
            elif isinstance(event, Reasoning):
                self._reasoning += event.text
                delta["reasoning_content"] = delta.get("reasoning_content", "") + event.text
            elif isinstance(event, CallStart):
                self._calls.append(_call(event))
                new_calls.append(_call(event))
            elif isinstance(event, CallArguments):
                self._calls[event.index]["function"]["arguments"] += event.text
                if not new_calls or new_calls[-1]["index"] != event.index:
                    new_calls.append({"index": event.index, "function": {"arguments": ""}})
                new_calls[-1]["function"]["arguments"] += event.text
        if new_calls:
            delta["tool_calls"] = new_calls


def _call(event: CallStart) -> dict[str, Any]:
    function = {"name": event.name, "arguments": ""}
    return {"index": event.index, "id": event.call_id, "type": "function", "function": function}
