"""What a model has said about one choice in one response, and how pieces of a message are joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a choice, or all of it."""

    index: int
    text: str = ""
    delta: dict[str, Any] | None = None
    """The part of a chat's message, where the model says it as such; otherwise it is the text."""
    finish_reason: str = ""
    """Empty until the last piece of the choice."""
    logprobs: dict[str, Any] | None = None
    prompt_logprobs: list[Any] | None = None
    """Of the prompt's tokens, once, where they were asked for."""


def join_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Adds a piece to the message: texts are appended, calls of tools are matched by their index."""
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            _join_calls(message.setdefault("tool_calls", []), value)
        elif isinstance(value, str) and isinstance(message.get(name), str) and name != "role":
            message[name] += value
        elif value is not None or name not in message:
            message[name] = value


def _join_calls(calls: list[dict[str, Any]], deltas: list[dict[str, Any]]) -> None:
    for delta in deltas:
        index = delta.get("index", len(calls))
        if not 0 <= index < len(calls):
            calls.append({key: value for key, value in delta.items() if key != "index"})
            continue
        function = calls[index].setdefault("function", {})
        added = delta.get("function") or {}
        if added.get("name"):
            function["name"] = added["name"]
        if added.get("arguments"):
            function["arguments"] = function.get("arguments", "") + added["arguments"]
