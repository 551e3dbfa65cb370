"""What every plot has: its size, axes with round numbers, a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5195", "#b58900", "#56b4e9", "#5c6770")
"""Told apart also by those who do not see all colours; the last one for what is beside the point."""
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 72, 32, 16, 48
"""With room for half of the last number of an axis on the right."""
_INK, FAINT = "#2b3440", "#d8dde3"
_TICKS = 6


class Frame:
    """From values to places; the axes reach from their first number to their last."""

    def __init__(self, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> None:
        self._x_ticks, self._y_ticks = x_ticks, y_ticks

    def x(self, value: float) -> float:
        return LEFT + _share(value, self._x_ticks) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - _share(value, self._y_ticks) * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str) -> str:
        """Without a label of its own the upright axis has no numbers, either."""
        parts = []
        for value in self._x_ticks:
            x = self.x(value)
            parts.append(
                f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="{FAINT}"/>'
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(value)}</text>'
            )
        for value in self._y_ticks if y_label else ():
            y = self.y(value)
            parts.append(
                f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{FAINT}"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
            )
        middle = (HEIGHT - BOTTOM + TOP) / 2
        parts.append(
            middle_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label)
            + f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
        )
        return "".join(parts)


def _share(value: float, of: Sequence[float]) -> float:
    return (value - of[0]) / (of[-1] - of[0])


def middle_text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle">{escape(text)}</text>'


def document(title: str, parts: Sequence[str], height: float = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">{"".join(parts)}</svg>'
    )


def legend(colours: dict[str, str]) -> str:
    entries = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in colours.items()
    )
    return f'<p class="legend">{entries}</p>'


def round_up(value: float) -> float:
    """The next number that can be divided into round steps."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    step = _step(value)
    return math.ceil(value / step - 1e-9) * step


def _step(top: float) -> float:
    rough = top / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    return next((factor * size for factor in (1.0, 2.0, 2.5, 5.0) if factor * size >= rough), 10 * size)


def ticks(top: float) -> list[float]:
    step = _step(top)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]


def edges(values: Sequence[float]) -> list[float]:
    """Round whole numbers from below the least value to above the most, at least two."""
    least, most = min(values), max(values)
    step = max(_step(max(most - least, 1.0)), 1.0)
    low = math.floor(least / step + 1e-9) * step
    count = max(1, math.ceil((most - low) / step - 1e-9))
    return [low + number * step for number in range(count + 1)]


def short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
