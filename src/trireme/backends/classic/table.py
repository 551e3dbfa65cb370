"""From the inputs of a batch to the table that a library predicts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.batching import Arrays, RequestError
from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.core.datatype import BYTES, from_config


class TableReader:
    """Reads one input with a row of numbers, or an input for each column; which of them, the configuration says."""

    def __init__(self, config: Mapping[str, Any], predictor: Predictor) -> None:
        entries: Sequence[Mapping[str, Any]] = config["input"]
        self._names = [str(entry["name"]) for entry in entries]
        self._texts = {str(entry["name"]) for entry in entries if from_config(entry["data_type"]) == BYTES}
        self._predictor = predictor
        self._is_matrix = not is_by_column(entries, predictor)
        self._columns = self._names
        if not self._is_matrix:
            self._columns = _ordered(str(config["name"]), self._names, predictor)
        is_frame = predictor.is_frame_wanted or bool(self._texts)
        self._pandas = require("pandas", "sklearn") if is_frame and not predictor.are_texts_wanted else None

    def table(self, arrays: Arrays) -> Any:
        """Raises RequestError for texts that are none."""
        if self._predictor.are_texts_wanted:
            return list(_texts(self._names[0], arrays[self._names[0]]).ravel())
        if self._is_matrix:
            return self._of_matrix(arrays[self._names[0]])
        rows = next(iter(arrays.values())).shape[0]
        columns = {name: self._column(name, arrays.get(name), rows) for name in self._columns}
        if self._pandas is None:
            return np.column_stack(list(columns.values()))
        return self._pandas.DataFrame(columns)

    def _of_matrix(self, matrix: NDArray[Any]) -> Any:
        name = self._names[0]
        values = _texts(name, matrix) if name in self._texts else matrix
        if self._pandas is None:
            return values
        return self._pandas.DataFrame(values, columns=list(self._predictor.column_names) or None)

    def _column(self, name: str, array: NDArray[Any] | None, rows: int) -> NDArray[Any]:
        """A value for each row; an input that is optional and absent has none."""
        if array is None:
            return np.full(rows, None, dtype=np.object_) if name in self._texts else np.full(rows, np.nan)
        if array.shape[1:] not in ((), (1,)):
            raise RequestError(f"input '{name}' is a column and has one value for each row, found {array.shape[1]}")
        return _texts(name, array).ravel() if name in self._texts else array.ravel()


def is_by_column(entries: Sequence[Mapping[str, Any]], predictor: Predictor) -> bool:
    """Whether each of these inputs is a column."""
    return len(entries) > 1 or (len(entries) == 1 and entries[0]["name"] in predictor.column_datatypes)


def _ordered(model: str, names: Sequence[str], predictor: Predictor) -> list[str]:
    """The inputs in the order of the model's columns; raises ModelLoadError where the two do not fit."""
    known = predictor.column_names
    if known and set(known) == set(names):
        return list(known)
    if predictor.is_frame_wanted and known:
        missing = [name for name in known if name not in names]
        other = [name for name in names if name not in known]
        raise ModelLoadError(
            f"the inputs of model '{model}' are not the columns that it was trained with: missing {missing}, "
            f"unknown {other}; one input with all of them in a row is also possible"
        )
    if predictor.column_count is not None and predictor.column_count != len(names):
        raise ModelLoadError(
            f"model '{model}' takes {predictor.column_count} columns, and its configuration has {len(names)} inputs; "
            "give each column an input, or one input all of them"
        )
    return list(names)


def _texts(name: str, array: NDArray[Any]) -> NDArray[Any]:
    texts = np.empty(array.size, dtype=np.object_)
    try:
        texts[:] = [element if isinstance(element, str) else bytes(element).decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise RequestError(f"an element of input '{name}' is not UTF-8 text: {error}") from None
    return texts.reshape(array.shape)
