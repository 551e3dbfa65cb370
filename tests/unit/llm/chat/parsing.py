"""Feeds parsers, and puts events together that only say where a text was cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from trireme.llm.chat.events import CallArguments, CallEnd, CallStart, Content, Event, Reasoning


def merged(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Content) and isinstance(last, Content):
            found[-1] = Content(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            found[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments) and event.index == last.index:
            found[-1] = CallArguments(event.index, last.text + event.text)
        else:
            found.append(event)
    return found


def parsed(parser: Any, pieces: Iterable[str]) -> list[Event]:
    events = [event for piece in pieces for event in parser.feed(piece)]
    return merged([*events, *parser.finish()])


def numbered() -> Any:
    """Ids that are the same in every run."""
    count = itertools.count()
    return lambda: f"id{next(count)}"


def call(index: int, name: str, arguments: str) -> list[Event]:
    return [CallStart(index, f"id{index}", name), CallArguments(index, arguments), CallEnd(index)]


def cuts(text: str) -> Iterable[Sequence[str]]:
    """The text whole, cut in two at every place, in three at some, and character by character."""
    yield [text]
    yield list(text)
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]
        yield [text[: at // 2], text[at // 2 : at], text[at:]]
