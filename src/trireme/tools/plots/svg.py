"""Plots as SVG text: axes with round numbers, lines with marks, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from trireme.tools.plots.frame import (
    BOTTOM,
    COLOURS,
    FAINT,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Frame,
    document,
    legend,
    middle_text,
    round_up,
    short,
    ticks,
)

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
    is_joined: bool = True
    """By a line, from each point to the next."""
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
    x_top = round_up(max([x for x, _ in points] + [value for value, _ in limits], default=1.0))
    y_top = round_up(max([y for _, y in points], default=1.0))
    frame = Frame(ticks(x_top), ticks(y_top))
    parts = [frame.axes(x_label, y_label)]
    for value, text in limits:
        x = frame.x(value)
        has_room = x - 4 - _LETTER * len(text) >= LEFT
        parts.append(
            f'<line class="limit" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#b00020" '
            f'stroke-dasharray="3 3"/><text x="{x - 4 if has_room else x + 4:.1f}" y="{TOP + 12}" '
            f'text-anchor="{"end" if has_room else "start"}" fill="#b00020">{escape(text)}</text>'
        )
    parts += [_line(frame, one) for one in series]
    names = {one.name: one.colour for one in series if one.has_marks and one.name}
    return document(title, parts) + (legend(names) if names else "")


def bar_plot(title: str, x_label: str, groups: Sequence[BarGroup], colours: dict[str, str], is_stacked: bool) -> str:
    """Bars that lie, a row for each label and one for each part where they are not stacked."""
    row_height, gap = (26, 0) if is_stacked else (18, 8)
    labels = [_lines_of(group.label) for group in groups]
    left = 16 + _LETTER * max(len(line) for lines in labels for line in lines)
    widest = max(
        (sum(group.values.values()) if is_stacked else max(group.values.values(), default=0)) for group in groups
    )
    top = round_up(widest or 1.0)
    scale = (WIDTH - left - RIGHT) / top
    parts: list[str] = []
    y = float(TOP)
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
    for value in ticks(top):
        x = left + value * scale
        parts.insert(0, f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{floor:.1f}" stroke="{FAINT}"/>')
        parts.append(middle_text(x, floor + 16, short(value)))
    parts.append(middle_text((left + WIDTH - RIGHT) / 2, floor + BOTTOM - 8, x_label))
    return document(title, parts, floor + BOTTOM) + legend(colours)


def _bars(
    group: BarGroup, names: Sequence[str], place: tuple[float, float, int], scale: float, colours: dict[str, str]
) -> list[str]:
    """One row, each bar from the end of the one before."""
    x, y, row_height = place
    found = []
    for name in names:
        width = group.values[name] * scale
        told = f"{group.label}, {name}: {short(group.values[name])}"
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


def _line(frame: Frame, one: Series) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in one.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = ' stroke-dasharray="5 4" opacity="0.6"' if one.is_dashed else ""
    parts = []
    if one.is_joined:
        parts.append(f'<polyline points="{path}" fill="none" stroke="{one.colour}" stroke-width="2"{dashes}/>')
    if one.has_marks:
        for number, (x, y) in enumerate(places):
            told = one.titles[number] if number < len(one.titles) else one.name
            parts.append(
                f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{one.colour}" stroke="white">'
                f"<title>{escape(told)}</title></circle>"
            )
    return "".join(parts)
