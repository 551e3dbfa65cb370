"""Which calls are recorded: a share of them at random, and of sequences all calls or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest

_MOST_SEQUENCES: Final = 100_000
"""Clients may begin sequences and never end them."""


class CallSampler:
    """Chooses by throwing dice, so that no rhythm of clients decides."""

    def __init__(self, share: float, models: frozenset[str], dice: Callable[[], float]) -> None:
        self._share = share
        self._models = models
        self._dice = dice
        self._sequences: set[tuple[str, int | str]] = set()

    def wants(self, request: InferenceRequest, is_sequence: bool) -> bool:
        """Whether this call is recorded; asked once for each call, in their order."""
        if self._models and request.model_name not in self._models:
            return False
        if is_sequence and request.correlation_id:
            return self._wants_of_sequence(request)
        return self._share >= 1 or self._dice() < self._share

    def _wants_of_sequence(self, request: InferenceRequest) -> bool:
        """A sequence that was begun before the recording could not be played back, so it is left out."""
        key = (request.model_name, request.correlation_id)
        if request.flags & SEQUENCE_START:
            is_chosen = len(self._sequences) < _MOST_SEQUENCES and (self._share >= 1 or self._dice() < self._share)
            if is_chosen:
                self._sequences.add(key)
            else:
                self._sequences.discard(key)
        else:
            is_chosen = key in self._sequences
        if request.flags & SEQUENCE_END:
            self._sequences.discard(key)
        return is_chosen
