"""The tensors of one request, read by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.backends.token_model.word_lists import Words, decode_words
from trireme.llm.sampling_params import MAX_BIASES, SamplingError


class TensorInputs:
    """Each has a row for every prompt, or one for all."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._arrays = arrays
        ids = arrays.get("input_ids")
        if ids is None and not self.flag("stop"):
            raise SamplingError("'input_ids' is missing")
        self.prompts = np.zeros((1, 0), np.int32) if ids is None else ids.reshape(1, -1) if ids.ndim < 2 else ids
        if self.prompts.ndim > 2:
            raise SamplingError(f"'input_ids' has the shape {list(self.prompts.shape)}; it takes [prompts, tokens]")
        self.count, self.width = self.prompts.shape

    def has(self, name: str) -> bool:
        return name in self._arrays and self._arrays[name].size > 0

    def first(self, *names: str) -> str:
        """The first of a tensor's names that is there, or its last."""
        return next((name for name in names if self.has(name)), names[-1])

    def flag(self, name: str) -> bool:
        return self.has(name) and bool(self._arrays[name].reshape(-1)[0])

    def whole(self, name: str, row: int, default: int) -> int:
        return int(self._value(name, row)) if self.has(name) else default

    def common(self, name: str, default: int) -> int:
        """What all prompts have to agree in."""
        found = {self.whole(name, row, default) for row in range(self.count)}
        if len(found) > 1:
            told = ", ".join(map(str, sorted(found)[:8]))
            raise SamplingError(f"'{name}' must be the same for all prompts of a request, found {told}")
        return next(iter(found), default)

    def real(self, name: str, row: int, default: float) -> float:
        return float(self._value(name, row)) if self.has(name) else default

    def required(self, name: str, row: int) -> int:
        if not self.has(name):
            raise SamplingError(f"'{name}' is missing")
        return self.whole(name, row, 0)

    def words(self, name: str, row: int) -> Words:
        if not self.has(name):
            return ()
        array = self._arrays[name]
        return decode_words(name, self._of_row(name, array if array.ndim > 2 else array[None], row))

    def bias(self, row: int, check_width: Callable[[list[int]], None]) -> dict[int, float]:
        """By token; `check_width` is given the shape and refuses those that fit no vocabulary."""
        if not self.has("embedding_bias"):
            return {}
        array = self._arrays["embedding_bias"]
        if array.ndim > 2:
            raise SamplingError(f"'embedding_bias' has the shape {list(array.shape)}; it takes [prompts, vocabulary]")
        check_width(list(array.shape))
        found = self._of_row("embedding_bias", array if array.ndim > 1 else array[None], row)
        tokens = np.flatnonzero(found)
        if len(tokens) > MAX_BIASES:
            raise SamplingError(f"'embedding_bias' must be 0 but for {MAX_BIASES} tokens, found {len(tokens)}")
        return {int(token): float(found[token]) for token in tokens}

    def _value(self, name: str, row: int) -> Any:
        array = self._arrays[name]
        found = self._of_row(name, array if array.ndim else array[None], row).reshape(-1)
        if len(found) != 1:
            raise SamplingError(
                f"'{name}' has {len(found)} values for a prompt, shape {list(array.shape)}; it takes one"
            )
        return found[0]

    def _of_row(self, name: str, array: npt.NDArray[Any], row: int) -> npt.NDArray[Any]:
        """One for all prompts, or one for each."""
        if len(array) not in (1, self.count):
            raise SamplingError(f"'{name}' has {len(array)} rows, and 'input_ids' {self.count}")
        return np.asarray(array[row if len(array) > 1 else 0])
