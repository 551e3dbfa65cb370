"""Text as it grows token by token, and where it ends: at a limit, a stop text, an end token, or a client that left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trireme.backends.transformers.items import Emitter

_INCOMPLETE = "\ufffd"  # what a decoder writes for the first bytes of a character

Decode = Callable[[Sequence[int]], str]


class GeneratedText:
    """One row of a generation."""

    def __init__(
        self,
        decode: Decode,
        end_ids: frozenset[int],
        limit: int,
        stops: Sequence[str],
        is_cancelled: Callable[[], bool],
        emit: Emitter | None,
    ) -> None:
        self._decode = decode
        self._end_ids = end_ids
        self._limit = limit
        self._stops = tuple(stop for stop in stops if stop)
        self._is_cancelled = is_cancelled
        self._emit = emit
        self._reads_along = emit is not None or bool(self._stops)
        self._text = ""  # of the tokens up to _read
        self._anchor = self._read = 0  # decoding begins a little before, since a token's text depends on its neighbour
        self._emitted_count = 0
        self._is_ended = False
        self.ids: list[int] = []
        self.is_done = False

    @property
    def has_emitted(self) -> bool:
        """Whether some of the text is on its way to the client."""
        return self._emitted_count > 0 or self._is_ended

    def push(self, token: int) -> None:
        """Takes the next token; afterwards `is_done` says whether it was the last one."""
        if self._is_cancelled():
            self.is_done = True
            return
        self.ids.append(token)  # an end token too: decoding leaves it out where it is a special one
        self.is_done = token in self._end_ids or len(self.ids) >= self._limit
        if self._reads_along:
            self._read_along()

    def finish(self) -> str:
        """The whole text; what of it was not emitted is emitted now, once, and the client told that it was the end."""
        text = self._cut(self._decode(self.ids))
        if self._emit is not None and not self._is_ended:
            self._is_ended = True
            if len(text) > self._emitted_count:
                self._emit(text[self._emitted_count :])
                self._emitted_count = len(text)
            self._emit.end()
        return text

    def finish_early(self) -> None:
        """The same for a client that reads along, while others of the batch go on."""
        if self._emit is not None:
            self.finish()

    def _read_along(self) -> None:
        before = self._decode(self.ids[self._anchor : self._read])
        after = self._decode(self.ids[self._anchor :])
        if len(after) <= len(before) or after.endswith(_INCOMPLETE):
            return
        self._text += after[len(before) :]
        self._anchor, self._read = self._read, len(self.ids)
        if any(stop in self._text for stop in self._stops):
            self.is_done = True
        elif self._emit is not None and not self.is_done:
            self._emit_sure()

    def _emit_sure(self) -> None:
        """All but an end that may become a stop text."""
        assert self._emit is not None
        sure = len(self._text) - self._held_back()
        if sure > self._emitted_count:
            self._emit(self._text[self._emitted_count : sure])
            self._emitted_count = sure

    def _held_back(self) -> int:
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-size:]) for stop in self._stops):
                return size
        return 0

    def _cut(self, text: str) -> str:
        ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(ends)] if ends else text


class PromptPrefix:
    """Puts the prompt before the first piece of a stream, so that the pieces join to what a single answer has."""

    def __init__(self, prompt: str, emit: Emitter) -> None:
        self._unsaid = prompt
        self._emit = emit

    def __call__(self, text: str) -> None:
        unsaid, self._unsaid = self._unsaid, ""
        self._emit(unsaid + text)

    def end(self) -> None:
        """Where nothing was generated, the prompt is all there is."""
        if self._unsaid:
            self("")
        self._emit.end()


def row_watch(torch: Any, texts: Sequence[GeneratedText], row_count: int) -> Callable[..., Any]:
    """A stopping criterion of transformers: hands every row its token and says which rows are done."""

    def watch(input_ids: Any, scores: Any, **others: Any) -> Any:
        done = [True] * row_count  # rows beyond the texts are there for the shape alone
        for index, (text, token) in enumerate(zip(texts, input_ids[:, -1].tolist(), strict=False)):
            if not text.is_done:
                text.push(token)
                if text.is_done:
                    text.finish_early()
            done[index] = text.is_done
        return torch.tensor(done, device=input_ids.device)

    return watch


def cancel_watch(torch: Any, checks: Sequence[Callable[[], bool]]) -> Callable[..., Any]:
    """A stopping criterion for beams, whose rows change places: ends all once every client has left."""

    def watch(input_ids: Any, scores: Any, **others: Any) -> Any:
        is_over = all(check() for check in checks)
        return torch.full((input_ids.shape[0],), is_over, device=input_ids.device)

    return watch
