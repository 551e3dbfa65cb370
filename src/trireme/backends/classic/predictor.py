"""A loaded classic model: what it takes, and what it can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trireme.core.datatype import BYTES

Method = Callable[[Any], Any]
"""From a table (a matrix, a data frame, or a list of texts) to one result for each of its rows."""


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The results of a method for one row."""

    datatype: str
    """Wire name."""
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Predictor:
    """What a library's loader makes of a file."""

    methods: Mapping[str, Method]
    """By the name of the output that has the results."""
    usual_outputs: tuple[str, ...]
    """Those that a model without a configuration has."""
    datatype: str
    """The numbers that the library computes with, which an input has unless the configuration says otherwise."""
    column_count: int | None = None
    """None: any number."""
    column_names: tuple[str, ...] = ()
    """As they were in training; empty where the model knows none."""
    column_datatypes: Mapping[str, str] = field(default_factory=dict)
    """Of columns by name. With some, a model without a configuration has an input for each column."""
    is_frame_wanted: bool = False
    """Whether rows come as a data frame, with the names of columns."""
    are_texts_wanted: bool = False
    """Whether a row is a single text."""
    likely_outputs: Mapping[str, OutputForm] = field(default_factory=dict)
    """Of outputs that cannot be tried with a row of zeros, because the model refuses it."""
    input_name: str = "input"

    @property
    def has_columns(self) -> bool:
        """Whether an input for each column is the usual form."""
        return bool(self.column_datatypes)

    def datatype_of(self, column: str) -> str:
        """The usual datatype of a column."""
        if self.are_texts_wanted:
            return BYTES
        return self.column_datatypes.get(column, self.datatype)
