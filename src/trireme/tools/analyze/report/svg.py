"""Plots as SVG text: axes with round numbers, lines with marks, and bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5195", "#b58900", "#56b4e9", "#5c6770")
"""Told apart also by those who do not see all colours; the last one for what is beside the point."""
_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 32, 16, 48
"""With room for half of the last number of an axis on the right."""
_INK, _FAINT = "#2b3440", "#d8dde3"
_TICKS = 6
_LETTER, _LINE = 7, 15
"""Room for a letter, which nearly all of them need less of, and for a line of text."""
_LONGEST_LABEL = 34
"""Letters in a line of a label; what is longer is shortened."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together."""

    name: str
    points: Sequence[tuple[float, float]]
    titles: Sequence[str] = ()
    """What a pointer over a mark shows."""
    colour: str = COLOURS[0]
    has_marks: bool = True
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class BarGroup:
    """Bars of one label: values by the names of the parts."""

    label: str
    values: dict[str, float]


def line_plot(
    title: str, x_label: str, y_label: str, series: Sequence[Series], limits: Sequence[tuple[float, str]] = ()
) -> str:
    """Lines and marks; `limits` are upright lines with a text."""
    points = [point for one in series for point in one.points]
    x_top = _round_up(max([x for x, _ in points] + [value for value, _ in limits], default=1.0))
    y_top = _round_up(max([y for _, y in points], default=1.0))
    frame = _Frame(x_top, y_top)
    parts = [frame.axes(x_label, y_label)]
    for value, text in limits:
        x = frame.x(value)
        has_room = x - 4 - _LETTER * len(text) >= _LEFT
        parts.append(
            f'<line class="limit" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#b00020" '
            f'stroke-dasharray="3 3"/><text x="{x - 4 if has_room else x + 4:.1f}" y="{_TOP + 12}" '
            f'text-anchor="{"end" if has_room else "start"}" fill="#b00020">{escape(text)}</text>'
        )
    parts += [_line(frame, one) for one in series]
    names = {one.name: one.colour for one in series if one.has_marks}
    return _document(title, parts) + _legend(names)


def bar_plot(title: str, x_label: str, groups: Sequence[BarGroup], colours: dict[str, str], is_stacked: bool) -> str:
    """Bars that lie, a row for each label and one for each part where they are not stacked."""
    row_height, gap = (26, 0) if is_stacked else (18, 8)
    labels = [_lines_of(group.label) for group in groups]
    left = 16 + _LETTER * max(len(line) for lines in labels for line in lines)
    widest = max(
        (sum(group.values.values()) if is_stacked else max(group.values.values(), default=0)) for group in groups
    )
    top = _round_up(widest or 1.0)
    scale = (_WIDTH - left - _RIGHT) / top
    parts: list[str] = []
    y = float(_TOP)
    for group, lines in zip(groups, labels, strict=True):
        rows = [list(group.values)] if is_stacked else [[name] for name in colours if name in group.values]
        height = max(len(rows) * row_height, len(lines) * _LINE)
        parts.append(_label(group.label, lines, left - 8, y + height / 2))
        bar_y = y + (height - len(rows) * row_height) / 2
        for names in rows:
            parts += _bars(group, names, (left, bar_y, row_height), scale, colours)
            bar_y += row_height
        y += height + gap
    floor = y
    for value in _ticks(top):
        x = left + value * scale
        parts.insert(0, f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{floor:.1f}" stroke="{_FAINT}"/>')
        parts.append(_middle_text(x, floor + 16, _short(value)))
    parts.append(_middle_text((left + _WIDTH - _RIGHT) / 2, floor + _BOTTOM - 8, x_label))
    return _document(title, parts, floor + _BOTTOM) + _legend(colours)


def _bars(
    group: BarGroup, names: Sequence[str], place: tuple[float, float, int], scale: float, colours: dict[str, str]
) -> list[str]:
    """One row, each bar from the end of the one before."""
    x, y, row_height = place
    found = []
    for name in names:
        width = group.values[name] * scale
        told = f"{group.label}, {name}: {_short(group.values[name])}"
        found.append(
            f'<rect class="mark" x="{x:.1f}" y="{y + 3:.1f}" width="{max(width, 0):.1f}" '
            f'height="{row_height - 6}" fill="{colours[name]}"><title>{escape(told)}</title></rect>'
        )
        x += width
    return found


def _label(label: str, lines: Sequence[str], x: float, middle: float) -> str:
    """Lines of text that end at x; a pointer over them shows the whole."""
    first = middle + 4 - (len(lines) - 1) * _LINE / 2
    return "".join(
        f'<text class="label" x="{x}" y="{first + number * _LINE:.1f}" text-anchor="end">{escape(line)}'
        f"<title>{escape(label)}</title></text>"
        for number, line in enumerate(lines)
    )


def _lines_of(label: str) -> list[str]:
    """A line for each of the models of one configuration, shortened in the middle: both ends tell names apart."""
    kept = _LONGEST_LABEL // 2
    names = label.split(",")
    names = [f"{name}," for name in names[:-1]] + names[-1:]
    return [name if len(name) <= _LONGEST_LABEL else f"{name[: kept - 1]}…{name[-kept:]}" for name in names]


class _Frame:
    """From values to places."""

    def __init__(self, x_top: float, y_top: float) -> None:
        self._x_top, self._y_top = x_top, y_top

    def x(self, value: float) -> float:
        return _LEFT + value / self._x_top * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self._y_top * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self, x_label: str, y_label: str) -> str:
        parts = []
        for value in _ticks(self._x_top):
            x = self.x(value)
            parts.append(
                f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="{_FAINT}"/>'
                f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>'
            )
        for value in _ticks(self._y_top):
            y = self.y(value)
            parts.append(
                f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="{_FAINT}"/>'
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
            )
        middle = (_HEIGHT - _BOTTOM + _TOP) / 2
        parts.append(
            _middle_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x_label)
            + f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
        )
        return "".join(parts)


def _line(frame: _Frame, one: Series) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in one.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = ' stroke-dasharray="5 4" opacity="0.6"' if one.is_dashed else ""
    parts = [f'<polyline points="{path}" fill="none" stroke="{one.colour}" stroke-width="2"{dashes}/>']
    if one.has_marks:
        for number, (x, y) in enumerate(places):
            told = one.titles[number] if number < len(one.titles) else one.name
            parts.append(
                f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{one.colour}" stroke="white">'
                f"<title>{escape(told)}</title></circle>"
            )
    return "".join(parts)


def _middle_text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle">{escape(text)}</text>'


def _document(title: str, parts: Sequence[str], height: float = _HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">{"".join(parts)}</svg>'
    )


def _legend(colours: dict[str, str]) -> str:
    entries = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in colours.items()
    )
    return f'<p class="legend">{entries}</p>'


def _round_up(value: float) -> float:
    """The next number that can be divided into round steps."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    step = _step(value)
    return math.ceil(value / step - 1e-9) * step


def _step(top: float) -> float:
    rough = top / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    return next((factor * size for factor in (1.0, 2.0, 2.5, 5.0) if factor * size >= rough), 10 * size)


def _ticks(top: float) -> list[float]:
    step = _step(top)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
