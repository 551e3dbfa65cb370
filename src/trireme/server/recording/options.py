"""What a client may ask of a recording, and the limits of what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trireme.core.errors import InvalidArgumentError

BUFFER_BYTES: Final = 64 << 20
"""What calls may take of the server's memory until they are fetched; beyond it they are left out and counted."""
BUFFER_CALLS: Final = 20_000
"""The same as a number of calls, which are objects however small they are."""
LEASE_S: Final = 30.0
"""A recording that nobody fetches from for so long ends."""
REPLACED_AFTER_S: Final = 2.0
"""One that has ended and is not fetched from for so long makes way for the next."""
DRAIN_S: Final = 5.0
"""So long are calls waited for that were under way when a recording was ended."""
_LARGEST: Final = 2**62
_MOST_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """One recording."""

    sample: float = 1.0
    """The share of calls that are recorded; a sequence is recorded whole or not at all."""
    limit: int = _LARGEST
    """Calls, after which it ends."""
    max_bytes: int = _LARGEST
    """Tensor data, after which it ends."""
    duration_s: float = 1e9
    max_call_bytes: int = 16 << 20
    """A call with larger inputs is recorded without them, one with larger outputs with the first of them."""
    models: frozenset[str] = frozenset()
    """Empty: all."""
    has_answers: bool = True

    def described(self) -> str:
        """In the words of an audit line."""
        shown = sorted(self.models)[:_MOST_NAMES]
        more = f" and {len(self.models) - len(shown)} more" if len(self.models) > len(shown) else ""
        whose = f"models {', '.join(shown)}{more}" if self.models else "all models"
        share = "all requests" if self.sample >= 1 else f"{100 * self.sample:g} % of the requests"
        return f"of {share} to {whose}{'' if self.has_answers else ', without answers'}"


def read_options(given: Mapping[str, Any]) -> RecordingOptions:
    """What a client sent; raises InvalidArgumentError."""
    unknown = set(given) - {"sample", "limit", "max_bytes", "duration_s", "max_call_bytes", "models", "answers"}
    if unknown:
        raise InvalidArgumentError(f"a recording has no setting '{min(unknown)}'")
    models = given.get("models", [])
    if not isinstance(models, list) or not all(isinstance(name, str) for name in models):
        raise InvalidArgumentError("'models' of a recording is a list of names")
    has_answers = given.get("answers", True)
    if not isinstance(has_answers, bool):
        raise InvalidArgumentError("'answers' of a recording is true or false")
    usual = RecordingOptions()
    return RecordingOptions(
        sample=_number(given, "sample", usual.sample, 1.0),
        limit=_whole(given, "limit", usual.limit, _LARGEST),
        max_bytes=_whole(given, "max_bytes", usual.max_bytes, _LARGEST),
        duration_s=_number(given, "duration_s", usual.duration_s, 1e9),
        max_call_bytes=_whole(given, "max_call_bytes", usual.max_call_bytes, BUFFER_BYTES // 2),
        models=frozenset(models),
        has_answers=has_answers,
    )


def _whole(given: Mapping[str, Any], name: str, usual: int, largest: int) -> int:
    value = _number(given, name, usual, largest)
    if value != int(value):
        raise InvalidArgumentError(f"'{name}' of a recording is a whole number, not {value}")
    return int(value)


def _number(given: Mapping[str, Any], name: str, usual: float, largest: float) -> float:
    value = given.get(name)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= largest:
        raise InvalidArgumentError(f"'{name}' of a recording is a number above 0 and no larger than {largest:g}")
    return value
