"""A model that could not be loaded, as those are told who asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why one model does not serve."""

    name: str
    folder: Path | None
    """None where no folder, or more than one, goes by the name."""
    text: str
    """All that is known, the place in the model's code included."""

    @property
    def cause(self) -> str:
        """The first line of it."""
        return next(iter(self.text.strip().splitlines()), "")
