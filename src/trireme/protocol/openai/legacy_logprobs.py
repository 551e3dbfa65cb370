"""Log probabilities in the form of completions, made of those that chats have."""

from __future__ import annotations

from typing import Any

Legacy = dict[str, list[Any]]


class LegacyLogprobs:
    """Those of one choice: tokens, their places in the text, and the likeliest tokens at each place."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = -1  # in characters, from the beginning of the choice's text; not known before the first piece

    def take(self, logprobs: dict[str, Any], text: str) -> Legacy:
        """The tokens of one more piece, which has this text: the first may begin with the prompt."""
        found: Legacy = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        entries = logprobs.get("content") or []
        if self._offset < 0:
            self._offset = max(0, len(text) - sum(map(_shown_size, entries)))
        for entry in entries:
            token = entry["token"]
            found["tokens"].append(token)
            found["token_logprobs"].append(entry["logprob"])
            found["text_offset"].append(self._offset)
            likeliest = {other["token"]: other["logprob"] for other in entry.get("top_logprobs") or ()}
            found["top_logprobs"].append(likeliest or None)
            self._offset += _shown_size(entry)
        return found

    def joined(self, known: Legacy | None, logprobs: dict[str, Any], text: str) -> Legacy:
        """What is known with the tokens of one more piece behind it."""
        taken = self.take(logprobs, text)
        if known is None:
            return taken
        for name, values in taken.items():
            known[name] += values
        return known


def _shown_size(entry: dict[str, Any]) -> int:
    """How many characters of the text the token has: a prompt's special tokens are not in it."""
    return 0 if entry.get("is_hidden") else len(entry["token"])
