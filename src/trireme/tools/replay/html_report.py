"""The report as one page that needs nothing else: tables, and bars of the latencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trireme.observe.terminal.plain_text import shown_lines, shown_name
from trireme.tools.replay.report import conclusions, shown_verdicts

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { border: 1px solid #d0d7de; padding: .3rem .7rem; }
th { background: #f6f8fa; text-align: left; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #b42318; font-weight: 600; } .good { color: #1a7f37; font-weight: 600; } .note { color: #57606a; }
pre { white-space: pre-wrap; background: #f6f8fa; padding: .6rem; } svg text { font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; }
 th, pre { background: #161b22; } th, td { border-color: #30363d; } svg text { fill: #e6edf3; } }
"""
_PERCENTILES = ("p50", "p90", "p99", "max")
_LATENCIES = {"latency_ms": "answer", "first_response_ms": "first response"}
_BAR_HEIGHT, _BAR_WIDTH, _LEFT = 16, 520, 150
_COLOURS = {"before": "#8c959f", "now": "#0969da"}


def html_report(document: Mapping[str, Any]) -> str:
    """The page."""
    title = f"Replay of {escape(document['recording'])}"
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>',
            f"<h1>{title}</h1>",
            _summary(document),
            "<h2>Answers</h2>",
            _verdicts(document),
            "<h2>Latency</h2>",
            f'<p class="note">Grey: before, {escape(document["latency_before_measured"])}. Blue: now, measured by the '
            "client of this replay.</p>",
            *(_plots(name, entry) for name, entry in document["models"].items()),
            _errors(document),
            _examples(document),
            "</body></html>",
        )
    )


def _summary(document: Mapping[str, Any]) -> str:
    asked = f" ({_message(document['asked_instead'])})" if document["asked_instead"] else ""
    lines = [
        f"<p>{document['sent']} of {document['requests']} requests to <b>{escape(document['server'])}</b>{asked} in "
        f"{document['seconds']:.1f} s, {escape(document['pace'])}; compared with "
        f"{escape(document['compared_with'])}.</p>"
    ]
    if not document["is_complete"]:
        lines.append(f'<p class="bad">Incomplete: {_message(document["end_reason"])}</p>')
    classes = {True: "good", False: "bad", None: "note"}
    lines += [f'<p class="{classes[is_good]}">{sentence}.</p>' for is_good, sentence in conclusions(document)]
    lines += [f'<p class="note">{_message(told)}</p>' for told in document["warnings"]]
    return "\n".join(lines)


def _verdicts(document: Mapping[str, Any]) -> str:
    shown = shown_verdicts(document)
    rows = [
        [_name(name), entry["requests"], *(entry["verdicts"].get(column, 0) for column in shown)]
        for name, entry in document["models"].items()
    ]
    return _table(["Model", "Requests", *(name.capitalize() for name in shown)], rows)


def _plots(name: str, entry: Mapping[str, Any]) -> str:
    """Of whole answers, and of the first responses of streams."""
    found = [_plot(name, title, entry[key]) for key, title in _LATENCIES.items() if entry[key]["now"] is not None]
    return "\n".join([f"<h3>{_name(name)}</h3>", *found]) if found else ""


def _plot(name: str, title: str, latencies: Mapping[str, Any]) -> str:
    """Bars of the percentiles, before above now."""
    bars = [
        (f"{percentile} {side}", side, latencies[side][percentile])
        for percentile in _PERCENTILES
        for side in ("before", "now")
        if latencies[side] is not None
    ]
    longest = max(value for _, _, value in bars) or 1.0
    lines = [
        f"<h4>{title}</h4>",
        f'<svg width="{_LEFT + _BAR_WIDTH + 110}" height="{(_BAR_HEIGHT + 4) * len(bars) + 4}" role="img" '
        f'aria-label="latency of {_name(name)}: {title}">',
    ]
    for number, (label, side, value) in enumerate(bars):
        top = number * (_BAR_HEIGHT + 4)
        width = max(1.0, value / longest * _BAR_WIDTH)
        lines.append(
            f'<text x="{_LEFT - 8}" y="{top + 12}" text-anchor="end">{label}</text>'
            f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{_COLOURS[side]}"/>'
            f'<text x="{_LEFT + width + 6:.1f}" y="{top + 12}">{value:.2f} ms</text>'
        )
    return "\n".join([*lines, "</svg>"])


def _errors(document: Mapping[str, Any]) -> str:
    if not document["errors"]:
        return ""
    rows = [[_name(entry["model"]), entry["count"], _message(entry["error"])] for entry in document["errors"]]
    return "<h2>Errors now</h2>" + _table(["Model", "Count", "Error"], rows)


def _examples(document: Mapping[str, Any]) -> str:
    if not document["examples"]:
        return ""
    parts = [f"<h2>The first {len(document['examples'])}</h2>"]
    for example in document["examples"]:
        name = f" (id {_name(example['id'])})" if example["id"] else ""
        details = "\n".join(map(_message, example["details"]))
        parts.append(
            f"<p><b>request {example['request']}</b>, {_name(example['model'])}{name}: {example['verdict']}</p>"
            f"<pre>{details}</pre>"
        )
    return "\n".join(parts)


def _name(name: str) -> str:
    return escape(shown_name(name))


def _message(text: str) -> str:
    return escape(shown_lines(text))


def _table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{header}</th>" for header in headers)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Any) -> str:
    return f'<td class="number">{cell}</td>' if isinstance(cell, (int, float)) else f"<td>{cell}</td>"
