"""Parts what a model wrote for itself, such as `<think>...</think>`, from its answer."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.llm.chat.events import Content, Event, Reasoning
from trireme.llm.tokenizer.stream_text import StopStrings


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """Around a model's reasoning."""

    opening: str
    closing: str

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends inside a reasoning, because the chat template has opened it."""
        return prompt.rfind(self.opening) > prompt.rfind(self.closing) and prompt.rstrip().endswith(self.opening)


class ReasoningSplitter:
    """Of one answer; spaces around the reasoning belong to nothing."""

    def __init__(self, tags: ReasoningTags, is_open: bool) -> None:
        """`is_open`: the prompt has begun the reasoning."""
        self._tags = tags
        self._stops = StopStrings((tags.closing,))
        self._buffer = ""
        self._has_begun = is_open
        self._is_inside = is_open
        self._must_trim = is_open
        """Whether spaces at the beginning of what follows are left out."""

    def feed(self, text: str) -> list[Event]:
        """What is certain by now."""
        self._buffer += text
        if not self._has_begun and not self._look_for_opening(is_last=False):
            return []
        return self._split(is_last=False)

    def finish(self, is_cut: bool = False) -> list[Event]:
        """What is left, when no more text comes; `is_cut`: the model would have written more, so that the beginning of
        a tag is none of its text."""
        if not self._has_begun and not self._look_for_opening(is_last=not is_cut):
            return []
        return self._split(is_last=not is_cut)

    def _look_for_opening(self, is_last: bool) -> bool:
        start = self._buffer.lstrip()
        if start.startswith(self._tags.opening):
            self._buffer = start[len(self._tags.opening) :]
            self._is_inside = self._must_trim = True
        elif self._tags.opening.startswith(start) and not is_last:
            return False
        self._has_begun = True
        return True

    def _split(self, is_last: bool) -> list[Event]:
        events: list[Event] = []
        if self._is_inside:
            found = self._stops.first(self._buffer)
            if found is None:
                self._tell_reasoning(events, self._kept(is_last))
                return events
            self._tell_reasoning(events, len(self._buffer[: found[0]].rstrip()))
            self._buffer = self._buffer.lstrip()[len(self._tags.closing) :]
            self._is_inside, self._must_trim = False, True
        self._trim()
        if self._buffer:
            events.append(Content(self._buffer))
            self._buffer = ""
        return events

    def _kept(self, is_last: bool) -> int:
        """How much is reasoning for sure: the spaces at its end belong to it only where it goes on."""
        certain = len(self._buffer) - (0 if is_last else self._stops.undecided(self._buffer))
        return len(self._buffer[:certain].rstrip())

    def _tell_reasoning(self, events: list[Event], count: int) -> None:
        text, self._buffer = self._buffer[:count], self._buffer[count:]
        if self._must_trim:
            text = text.lstrip()
            self._must_trim = not text
        if text:
            events.append(Reasoning(text))

    def _trim(self) -> None:
        if self._must_trim:
            self._buffer = self._buffer.lstrip()
            self._must_trim = not self._buffer
