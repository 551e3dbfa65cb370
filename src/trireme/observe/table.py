"""Tables of text as the start-up log shows them."""

from __future__ import annotations

from collections.abc import Sequence


def render_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table with its frame, without a line break at the end.

    Cells stand at the left; a cell of several lines makes its row several lines high.
    """
    lines_of_rows = [[cell.split("\n") for cell in row] for row in (headers, *rows)]
    widths = [max(len(line) for row in lines_of_rows for line in row[column]) for column in range(len(headers))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    rendered = [_render_row(row, widths) for row in lines_of_rows]
    return "\n".join([rule, rendered[0], rule, *rendered[1:], rule])


def _render_row(cells: Sequence[list[str]], widths: Sequence[int]) -> str:
    height = max(len(lines) for lines in cells)
    return "\n".join(
        "|" + "|".join(f" {(lines[at] if at < len(lines) else ''):<{width}} " for lines, width in pairs) + "|"
        for at in range(height)
        for pairs in [list(zip(cells, widths, strict=True))]
    )
