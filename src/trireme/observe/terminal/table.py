"""Tables of text as the start-up log and the commands show them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from trireme.observe.terminal.plain_text import one_line

_LEAST_WIDTH = 12
"""A column is not made narrower for the sake of the terminal."""


def render_table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """The table with its frame, without a line break at the end.

    Cells stand at the left; a cell of several lines makes its row several lines high, and no cell steers the terminal,
    whoever has written what is in it. Where the table would be wider
    than `width`, the lines of its widest columns are broken.
    """
    lines_of_rows = [[[one_line(line) for line in cell.split("\n")] for cell in row] for row in (headers, *rows)]
    widths = _fitting(_widths(lines_of_rows), width)
    lines_of_rows = [[_broken(lines, most) for lines, most in zip(row, widths, strict=True)] for row in lines_of_rows]
    widths = _widths(lines_of_rows)
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    rendered = [_render_row(row, widths) for row in lines_of_rows]
    return "\n".join([rule, rendered[0], rule, *rendered[1:], rule])


def _widths(rows: Sequence[Sequence[Sequence[str]]]) -> list[int]:
    return [max(len(line) for row in rows for line in row[column]) for column in range(len(rows[0]))]


def _fitting(widths: list[int], width: int | None) -> list[int]:
    """The widths of the columns, the widest made narrower until the table fits or none can be."""
    if width is None:
        return widths
    room = width - 3 * len(widths) - 1
    fitting = list(widths)
    while sum(fitting) > room and max(fitting) > _LEAST_WIDTH:
        fitting[fitting.index(max(fitting))] -= 1
    return fitting


def _broken(lines: Sequence[str], width: int) -> list[str]:
    """The same text in lines of at most so many characters, each line's own indentation kept."""
    found: list[str] = []
    for line in lines:
        if len(line) <= width:
            found.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())][: width // 2]
        found += textwrap.wrap(line.strip(), width, initial_indent=indent, subsequent_indent=indent) or [""]
    return found


def _render_row(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    height = max(len(lines) for lines in cells)
    return "\n".join(
        "|" + "|".join(f" {(lines[at] if at < len(lines) else ''):<{width}} " for lines, width in pairs) + "|"
        for at in range(height)
        for pairs in [list(zip(cells, widths, strict=True))]
    )
