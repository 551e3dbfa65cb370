"""When the poller tries a model again that failed and whose files have not changed: seldom, and ever more so."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from trireme.registry.repository.folder_stamp import FolderStamp
from trireme.registry.repository.repositories import ModelId

MOST_LOOKS = 32
"""So many looks at the repository are between two tries at most."""


@dataclass(slots=True)
class _Failure:
    stamp: FolderStamp
    text: str | None
    """What was wrong; None where that was told at the start."""
    looks_left: int
    pause: int


class Retries:
    """Remembers what failed. A pause lasts two looks at first and twice as many after each failure."""

    def __init__(self) -> None:
        self._failures: dict[ModelId, _Failure] = {}

    def is_known(self, model_id: ModelId, stamp: FolderStamp) -> bool:
        """Whether the model failed with these very files."""
        failure = self._failures.get(model_id)
        return failure is not None and failure.stamp.is_same_as(stamp)

    def is_due(self, model_id: ModelId) -> bool:
        """Whether a known failure is to be tried again at this look; to be asked once per look."""
        failure = self._failures[model_id]
        failure.looks_left -= 1
        return failure.looks_left <= 0

    def note_failure(self, model_id: ModelId, stamp: FolderStamp, text: str | None) -> bool:
        """Begins or lengthens the pause; whether the failure is another one than before."""
        before = self._failures.get(model_id)
        is_repeated = before is not None and before.stamp.is_same_as(stamp)
        pause = min(before.pause * 2, MOST_LOOKS) if before is not None and is_repeated else 2
        self._failures[model_id] = _Failure(stamp, text, pause, pause)
        return before is None or not is_repeated or before.text not in (None, text)

    def forget_all_but(self, present: Container[ModelId]) -> None:
        """No other model has a folder any more."""
        for model_id in [known for known in self._failures if known not in present]:
            del self._failures[model_id]

    def forget(self, model_id: ModelId) -> None:
        """The model loads, or is gone."""
        self._failures.pop(model_id, None)
