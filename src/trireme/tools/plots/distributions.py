"""Plots of how values are spread: a box with its points, and how often two lengths come together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

import numpy as np

from trireme.tools.plots.frame import COLOURS, Frame, document, edges, round_up, short, ticks

MOST_MARKS = 2000
"""Of one plot; more make a page slow, and cover each other."""
_BOX, _POINTS = (0.55, 0.9), (0.1, 0.45)
"""From the lower to the upper edge, as shares of the height."""
_WHISKER = 1.5
_GOLDEN = 0.618034
_FAINTEST = 0.15


def thinned(count: int) -> list[int]:
    """The numbers of those that are drawn, at even distances where there are too many for all."""
    if count <= MOST_MARKS:
        return list(range(count))
    return sorted({round(number * (count - 1) / (MOST_MARKS - 1)) for number in range(MOST_MARKS)})


def box_plot(title: str, x_label: str, values: Sequence[float]) -> str:
    """The middle half as a box with the median in it, what is near as a line, and every value as a mark below."""
    array = np.sort(np.asarray(values, np.float64))
    quarter, median, rest = (float(np.percentile(array, share)) for share in (25, 50, 75))
    reach = _WHISKER * (rest - quarter)
    near = array[(array >= quarter - reach) & (array <= rest + reach)]
    frame = Frame(ticks(round_up(float(array[-1]))), (0.0, 1.0))
    low, high = (frame.y(share) for share in _BOX)
    middle = (low + high) / 2
    colour = COLOURS[0]
    told = f"median {short(median)}, middle half {short(quarter)} to {short(rest)}"
    parts = [
        frame.axes(x_label, ""),
        _line(frame.x(float(near[0])), middle, frame.x(quarter), middle),
        _line(frame.x(rest), middle, frame.x(float(near[-1])), middle),
        f'<rect class="box" x="{frame.x(quarter):.1f}" y="{high:.1f}" width="{frame.x(rest) - frame.x(quarter):.1f}" '
        f'height="{low - high:.1f}" fill="{colour}" fill-opacity="0.3" stroke="{colour}"><title>{escape(told)}</title>'
        "</rect>",
        _line(frame.x(median), low, frame.x(median), high),
    ]
    bottom, top = _POINTS
    for number in thinned(len(array)):
        y = frame.y(bottom + (top - bottom) * (number * _GOLDEN % 1.0))
        parts.append(
            f'<circle class="mark" cx="{frame.x(float(array[number])):.1f}" cy="{y:.1f}" r="3" fill="{colour}" '
            f'fill-opacity="0.6"><title>{short(float(array[number]))}</title></circle>'
        )
    return document(title, parts)


def heat_map(title: str, labels: tuple[str, str], pairs: Sequence[tuple[float, float]]) -> str:
    """A field for each step of both axes, the darker the more pairs are in it."""
    columns, rows = edges([x for x, _ in pairs]), edges([y for _, y in pairs])
    counts = Counter((_field(x, columns), _field(y, rows)) for x, y in pairs)
    frame = Frame(columns, rows)
    most = max(counts.values())
    parts = [frame.axes(*labels)]
    for (column, row), count in sorted(counts.items()):
        left, right, bottom, top = columns[column], columns[column + 1], rows[row], rows[row + 1]
        told = f"{count}: {labels[0]} {short(left)} to {short(right)}, {labels[1]} {short(bottom)} to {short(top)}"
        parts.append(
            f'<rect class="mark" x="{frame.x(left):.1f}" y="{frame.y(top):.1f}" '
            f'width="{frame.x(right) - frame.x(left):.1f}" height="{frame.y(bottom) - frame.y(top):.1f}" '
            f'fill="{COLOURS[0]}" fill-opacity="{_FAINTEST + (1 - _FAINTEST) * count / most:.2f}" stroke="white">'
            f"<title>{escape(told)}</title></rect>"
        )
    return document(title, parts)


def _field(value: float, edges: Sequence[float]) -> int:
    """Between which edges; what lies on the last one is in the last field."""
    return min(int((value - edges[0]) / (edges[1] - edges[0]) + 1e-9), len(edges) - 2)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{COLOURS[0]}" stroke-width="2"/>'
