"""Text that comes token by token: whole characters only, and nothing of a stop string.

What a token adds to a text may not be known yet: it may end in the middle of a character, and what it ends with may
turn out to be the beginning of a stop string. Such text is held back until it is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from trireme.llm.tokenizer.detokenizer import make_detokenizer
from trireme.llm.tokenizer.port import Tokenizer


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What may be shown after a token."""

    text: str
    """New text; may be empty."""
    token_count: int
    """How many tokens, from the first one on, have their text shown by now; for their probabilities."""
    stop: str | None = None
    """The stop string that ended the text. No more text comes after it."""

    @property
    def is_stopped(self) -> bool:
        return self.stop is not None


class StopStrings:
    """Finds the end of a text."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)

    def first(self, text: str) -> tuple[int, str] | None:
        """Where a stop string begins, and which: the one that is complete first, the longest of those."""
        found = [(at + len(string), at, string) for string in self._strings if (at := text.find(string)) >= 0]
        if not found:
            return None
        _, begin, string = min(found)
        return begin, string

    def undecided(self, text: str) -> int:
        """How many characters at the text's end may be the beginning of a stop string."""
        longest = 0
        for string in self._strings:
            at = text.find(string[0], max(0, len(text) - len(string) + 1))
            while at >= 0 and not string.startswith(text[at:]):
                at = text.find(string[0], at + 1)
            if at >= 0:
                longest = max(longest, len(text) - at)
        return longest


class TextStream:
    """One answer's text. The pieces put together are the whole text, up to its stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        skip_special: bool = True,
        shown: frozenset[int] = frozenset(),
        includes_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        """`min_tokens`: stop strings count from that token on. `includes_stop`: the stop string is shown too.
        `shown`: special tokens that are not skipped.
        """
        self._detokenizer = make_detokenizer(tokenizer, skip_special, shown)
        self._stops = StopStrings(stop)
        self._includes_stop = includes_stop
        self._min_tokens = min_tokens
        self._added = 0
        self._held = ""
        self._stop: str | None = None
        self._shown_tokens = _ShownTokens()

    def add(self, token: int) -> TextPiece:
        """The next token's text. After the stop nothing comes any more."""
        if self._stop is not None:
            return TextPiece("", self._shown_tokens.token_count, self._stop)
        self._added += 1
        text = self._detokenizer.add(token)
        self._shown_tokens.known(len(text), self._detokenizer.is_undecided)
        return self._show(self._held + text, is_last=False)

    def finish(self) -> TextPiece:
        """What was held back, when no more tokens come."""
        if self._stop is not None:
            return TextPiece("", self._shown_tokens.token_count, self._stop)
        return self._show(self._held + self._detokenizer.finish(), is_last=True)

    def _show(self, text: str, is_last: bool) -> TextPiece:
        self._held = ""
        if self._added >= self._min_tokens:
            found = self._stops.first(text)
            if found is not None:
                begin, self._stop = found
                shown = text[: begin + len(self._stop)] if self._includes_stop else text[:begin]
                return TextPiece(shown, self._shown_tokens.stopped(len(shown)), self._stop)
            if not is_last:
                size = len(text) - self._stops.undecided(text)
                text, self._held = text[:size], text[size:]
        return TextPiece(text, self._shown_tokens.finished() if is_last else self._shown_tokens.shown(len(text)))


class _ShownTokens:
    """How many tokens are shown. A token is shown when its last character is."""

    def __init__(self) -> None:
        self.token_count = 0
        self._known = 0
        self._shown = 0
        self._counted = 0
        """Where the text of the counted tokens ends."""
        self._ends: deque[int] = deque()
        """Where the texts of the tokens end that are not counted yet."""

    def known(self, size: int, is_undecided: bool) -> None:
        """A token came, and with it so much text; one that ends inside a character ends where that will end."""
        self._known += size
        self._ends.append(self._known + is_undecided)

    def shown(self, size: int) -> int:
        self._shown += size
        while self._ends and self._ends[0] <= self._shown:
            self._counted = self._ends.popleft()
            self.token_count += 1
        return self.token_count

    def stopped(self, size: int) -> int:
        """A token of which a part is shown counts."""
        self.shown(size)
        if self._ends and self._shown > self._counted:
            self.token_count += 1
        return self.token_count

    def finished(self) -> int:
        self.token_count += len(self._ends)
        self._ends.clear()
        return self.token_count
