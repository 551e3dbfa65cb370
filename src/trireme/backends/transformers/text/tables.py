"""Tables out of requests: a text of JSON with the columns by their names, or with the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.core.reading.json_levels import read_json

_FORMS = '{"name": ["Anna", "Otto"], "age": [41, 33]} or [{"name": "Anna", "age": 41}, {"name": "Otto", "age": 33}]'


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in columns of one length."""

    columns: Mapping[str, Sequence[str]]

    def rows(self) -> list[tuple[str, ...]]:
        """The cells, without the names of the columns."""
        return list(zip(*self.columns.values(), strict=True))


def read_table(text: str) -> Table:
    """Raises RequestError where there is no table in the text."""
    try:
        found = read_json(text)
    except ValueError as error:
        raise RequestError(f"input 'table' is not JSON ({error}); send one such as {_FORMS}") from None
    if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
        names = dict.fromkeys(name for row in found for name in row)
        found = {name: [row.get(name) for row in found] for name in names}
    if not isinstance(found, dict) or not all(isinstance(cells, list) for cells in found.values()):
        raise RequestError(f"input 'table' must have lists of cells by the names of columns, or rows; such as {_FORMS}")
    lengths = {name: len(cells) for name, cells in found.items()}
    if len(set(lengths.values())) > 1:
        raise RequestError(f"the columns of 'table' must be equally long, found {lengths}")
    if not any(lengths.values()):
        raise RequestError("input 'table' has no cells")
    return Table({name: [_cell(name, cell) for cell in cells] for name, cells in found.items()})


def _cell(column: str, given: Any) -> str:
    if isinstance(given, (list, dict)):
        raise RequestError(f"the cells of column '{column}' of 'table' must be texts or numbers, found {given!r:.80}")
    return "" if given is None else str(given)
