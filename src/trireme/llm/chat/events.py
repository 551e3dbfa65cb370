"""What an answer is made of, in the order in which it is written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Some of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Some of what the model wrote for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool begins."""

    index: int
    """From 0 on."""
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Some of a call's arguments, which are JSON once they are whole."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call has its arguments, or no more of them come."""

    index: int


Event = Content | Reasoning | CallStart | CallArguments | CallEnd
