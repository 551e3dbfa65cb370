"""The library's cache of keys and values, with numbers that have passed through fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import DynamicCache


class RoundingCache(DynamicCache):
    """Rounds all that is put into it."""

    def __init__(self, config: Any, rounded: Callable[[Any], Any]) -> None:
        super().__init__(config=config)
        self._rounded = rounded

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *others: Any, **named: Any) -> Any:
        return super().update(self._rounded(key_states), self._rounded(value_states), layer_idx, *others, **named)
