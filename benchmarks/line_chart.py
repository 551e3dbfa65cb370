"""Lines over a few whole numbers, as an SVG that a browser shows in the colours of its page, light or dark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 380, 300
"""Of one panel."""
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 56, 48
COLOURS = ("#3b82c4", "#d97706", "#2f9e6e", "#b8509f", "#7a6ff0", "#c2413a")
STYLE = "text{font:12px sans-serif;fill:#888}.title{font-size:14px}line,path{fill:none;stroke:#8886}"


@dataclass(frozen=True)
class Panel:
    """One diagram of several that stand side by side with the same scale."""

    title: str
    lines: dict[str, dict[int, float]]
    """By their names, which all panels share: from what is below to what is beside."""


def line_chart(title: str, below: str, panels: list[Panel]) -> str:
    """The text of the picture. The numbers below stand at equal distances; the scale beside begins at 0."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    top = _round_up(max(value for panel in panels for line in panel.lines.values() for value in line.values()))
    width, height = WIDTH * len(panels), HEIGHT + 18 * len(names)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">']
    parts += [f"<title>{escape(title)}</title><style>{STYLE}</style>"]
    parts += [f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>']
    for index, panel in enumerate(panels):
        parts += [f'<g transform="translate({WIDTH * index})">', *_panel(panel, names, top, below), "</g>"]
    for index, name in enumerate(names):
        y = HEIGHT + 18 * index
        parts += [f'<path d="M{LEFT} {y}h24" style="stroke:{_colour(index)};stroke-width:2"/>']
        parts += [f'<text x="{LEFT + 32}" y="{y + 4}">{escape(name)}</text>']
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, names: list[str], top: float, below: str) -> list[str]:
    numbers = sorted({number for line in panel.lines.values() for number in line})
    step = (WIDTH - LEFT - RIGHT) / max(1, len(numbers) - 1)
    across = {number: LEFT + step * index for index, number in enumerate(numbers)}
    floor = HEIGHT - BOTTOM

    def up(value: float) -> float:
        return floor - (floor - TOP) * value / top

    parts = [f'<text x="{LEFT}" y="{TOP - 14}">{escape(panel.title)}</text>']
    for share in range(5):
        value = top * share / 4
        parts += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>']
        parts += [f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{value:g}</text>']
    for number, x in across.items():
        parts += [f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{number}</text>']
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts += [f'<text x="{middle}" y="{floor + 34}" text-anchor="middle">{escape(below)}</text>']
    for name, line in panel.lines.items():
        colour = _colour(names.index(name))
        points = [(across[number], up(line[number])) for number in sorted(line)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts += [f'<path d="M{path}" style="stroke:{colour};stroke-width:2"/>']
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:{colour}"/>' for x, y in points]
    return parts


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _round_up(value: float) -> float:
    """The next number of one digit, of which a quarter is told well: 1, 2, 4, 6, 8 or 10 of some size."""
    size = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next(size * digit for digit in (1, 2, 4, 6, 8, 10) if size * digit >= value)
