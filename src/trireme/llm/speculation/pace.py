"""How many tokens are worth drafting for one sequence: more behind drafts that were right, fewer behind wrong ones."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_REST = 64
"""Tokens without drafts, at most, behind drafts that were all wrong."""


@dataclass(slots=True)
class DraftPace:
    """Of one sequence."""

    length: int
    """How many tokens are drafted at once now."""
    misses: int = 0
    """How many drafts in a row were wrong from their first token on."""
    resumes_at: int = 0
    """The size of the sequence from which on it is drafted for again."""

    def allowed(self, size: int) -> int:
        """How many tokens to draft behind so many."""
        return self.length if size >= self.resumes_at else 0

    def note(self, drafted: int, accepted: int, size: int, most: int) -> None:
        """So many of the tokens were right; the sequence has now `size`."""
        if accepted:
            self.misses = 0
            self.length = min(most, 2 * max(self.length, drafted)) if accepted == drafted else accepted + 1
            return
        self.misses += 1
        self.length = max(1, min(self.length, drafted) // 2)
        self.resumes_at = size + min(2**self.misses, _LONGEST_REST) - 1
