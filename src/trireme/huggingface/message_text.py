"""How the texts of one message become one, for chat templates that read no lists."""

from __future__ import annotations

from collections.abc import Iterable


def joined_texts(texts: Iterable[str]) -> str:
    """A line each; `protocol.openai.requests.text_of`, which knows no templates, does the same."""
    return "\n".join(texts)
