"""What the parsers of all formats of tool calls have in common: text in, events out, nothing told too early."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trireme.llm.chat.events import CallArguments, CallEnd, CallStart, Content, Event
from trireme.llm.chat.json_scanner import JsonValue, ToolCallScanner
from trireme.llm.tokenizer.stream_text import StopStrings

State = Callable[[], bool]
"""Looks at the buffer; whether it went on, and the next state can be asked. Without, more text is needed."""


def new_call_id() -> str:
    """As OpenAI's look."""
    return f"call_{secrets.token_hex(12)}"


class ToolParser(ABC):
    """Of one answer. Where the text is cut into pieces changes nothing but how the events are cut."""

    def __init__(
        self,
        names: Collection[str] = (),
        new_id: Callable[[], str] = new_call_id,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`names`: the tools of the request; empty: not known. `schemas`: what is known of their arguments, by name."""
        self._names = frozenset(names)
        self._schemas = schemas or {}
        self._new_id = new_id
        self._buffer = ""
        self._is_last = False
        self._is_cut = False
        self._events: list[Event] = []
        self._spaces = ""
        """Behind the content; forgotten where a call follows."""
        self._count = 0
        self._call: ToolCallScanner | None = None
        self._raw = ""
        """What was read of a call that has not started: content, where it turns out to be none."""
        self._state: State = self._begin

    def feed(self, text: str) -> list[Event]:
        """What is certain by now."""
        self._buffer += text
        self._run()
        return self._taken()

    def finish(self, is_cut: bool = False) -> list[Event]:
        """What is left, when no more text comes; `is_cut`: the model would have written more, so that what is the
        beginning of a call is not taken for content."""
        self._is_last, self._is_cut = True, is_cut
        self._run()
        self._end_text()
        if self._spaces and not self._count:
            self._events.append(Content(self._spaces))
        return self._taken()

    def _end_text(self) -> None:
        """What is left has been looked at for the last time: an open call ends, other text is content."""
        if self._call is not None and self._call.is_started:
            self._end_call()
        elif self._is_cut and self._is_call_begun():
            self._spaces = ""
        else:
            self._tell(self._raw + self._buffer)

    def _is_call_begun(self) -> bool:
        """Whether what is left is the beginning of a call, or of its tag, rather than content."""
        return self._state != self._begin or bool(self._buffer)

    @property
    def _may_go_on(self) -> bool:
        """Whether more text comes, or would have come."""
        return not self._is_last or self._is_cut

    @abstractmethod
    def _begin(self) -> bool:
        """The first state."""

    def _run(self) -> None:
        while self._state():
            pass

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _go(self, state: State) -> bool:
        self._state = state
        return True

    def _tell(self, text: str) -> None:
        """Content, without the spaces at its end."""
        text = self._spaces + text
        body = text.rstrip()
        self._spaces = text[len(body) :]
        if body:
            self._events.append(Content(body))

    def _tell_until(self, *markers: str) -> str:
        """Content up to a marker, which is taken away and returned; "" where none has come yet."""
        found = StopStrings(markers).first(self._buffer)
        if found is not None:
            at, marker = found
            self._tell(self._buffer[:at])
            self._buffer = self._buffer[at + len(marker) :]
            return marker
        self._tell(self._take(len(self._buffer) - self._undecided(markers)))
        return ""

    def _skip_until(self, *markers: str) -> str:
        """The same with what is no content."""
        found = StopStrings(markers).first(self._buffer)
        if found is None:
            self._take(len(self._buffer) - self._undecided(markers))
            return ""
        at, marker = found
        self._buffer = self._buffer[at + len(marker) :]
        return marker

    def _undecided(self, markers: Collection[str]) -> int:
        return StopStrings(tuple(markers)).undecided(self._buffer) if self._may_go_on else 0

    def _take(self, count: int) -> str:
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _skip(self, chars: str) -> None:
        self._buffer = self._buffer.lstrip(chars)

    def _expect_call(self, raw: str, *, is_strict: bool = False) -> None:
        """A call as JSON follows; `raw` is what announced it. `is_strict`: other JSON may follow as well."""
        self._raw = raw
        self._call = ToolCallScanner(
            self._start_call,
            self._tell_arguments,
            accepts=lambda name: not is_strict or not self._names or name in self._names,
            needs_arguments=is_strict,
        )

    def _read_call(self, then: State, otherwise: State) -> bool:
        """Reads on; `otherwise` where it is no call, whose text is content then."""
        assert self._call is not None
        read = self._take(self._call.read(self._buffer))
        self._raw = "" if self._call.is_started else self._raw + read
        if self._call.is_done or (self._call.is_failed and self._call.is_started):
            self._call = None
            self._raw = ""
            self._end_call()
            return self._go(then)
        if self._call.is_failed:
            self._call = None
            self._buffer, self._raw = self._raw + self._buffer, ""
            return self._go(otherwise)
        return False

    def _read_arguments(self, value: JsonValue, then: State) -> bool:
        """Reads the arguments of a call that has started, which are a value of their own."""
        read = self._take(value.read(self._buffer, 0))
        if read:
            self._tell_arguments(read)
        if not value.is_done and not self._is_last:
            return False
        self._end_call()
        return self._go(then)

    def _start_call(self, name: str) -> None:
        self._spaces = ""
        self._events.append(CallStart(self._count, self._new_id(), name))

    def _tell_arguments(self, text: str) -> None:
        self._events.append(CallArguments(self._count, text))

    def _end_call(self) -> None:
        self._events.append(CallEnd(self._count))
        self._count += 1

    def _plain(self) -> bool:
        """Everything is content."""
        self._tell(self._take(len(self._buffer)))
        return False

    def _nothing(self) -> bool:
        """What follows the last call counts for nothing."""
        self._buffer = ""
        return False
