"""The prompt at the beginning of a text, from models that tell it again: it is left out of the text of a choice."""

from __future__ import annotations


class RepeatedPrompt:
    """That of one choice, whose text may come in pieces."""

    __slots__ = ("_is_over", "_prompt", "_seen")

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._seen = 0  # characters of it that the text has begun with, and that were not told yet
        self._is_over = False

    def cut(self, text: str, is_last: bool) -> str:
        """What can be told of the text so far: nothing as long as it may become the prompt, which alone is left out."""
        if self._is_over:
            return text
        missing = len(self._prompt) - self._seen
        if not self._prompt.startswith(text[:missing], self._seen):
            return self._end() + text
        if len(text) >= missing:
            self._is_over = True
            return text[missing:]
        self._seen += len(text)
        return self._end() if is_last else ""

    def _end(self) -> str:
        self._is_over = True
        return self._prompt[: self._seen]
