"""The report for people at a terminal: tables, and the first things that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from trireme.observe.terminal.appearance import line_width, painted
from trireme.observe.terminal.plain_text import shown_lines, shown_name
from trireme.observe.terminal.table import render_table
from trireme.tools.replay.report import conclusions, shown_verdicts

_COLOURS = {True: "green", False: "red", None: "yellow"}


def text_report(document: Mapping[str, Any], stream: TextIO) -> str:
    """The whole of it."""
    width = line_width(stream)
    parts = [_heading(document), _verdict_table(document, width), _latency_table(document, width)]
    if document["errors"]:
        rows = [
            (shown_name(entry["model"]), str(entry["count"]), shown_lines(entry["error"]))
            for entry in document["errors"]
        ]
        parts.append(render_table(("Model", "Count", "Error now"), rows, width))
    if document["examples"]:
        parts.append(_examples(document))
    parts += [painted(f"warning: {shown_lines(told)}", "yellow", stream) for told in document["warnings"]]
    parts.append(_conclusion(document, stream))
    return "\n\n".join(part for part in parts if part)


def _heading(document: Mapping[str, Any]) -> str:
    asked = f" ({shown_lines(document['asked_instead'])})" if document["asked_instead"] else ""
    return (
        f"{document['recording']} -> {document['server']}{asked}, compared with {document['compared_with']}\n"
        f"{document['sent']} of {document['requests']} requests in {document['seconds']:.1f} s "
        f"({document['requests_per_second']:.1f} requests/s), {document['pace']}"
    )


def _verdict_table(document: Mapping[str, Any], width: int | None) -> str:
    shown = shown_verdicts(document)
    rows = [
        (shown_name(name), str(entry["requests"]), *(str(entry["verdicts"].get(column, 0)) for column in shown))
        for name, entry in document["models"].items()
    ]
    return render_table(("Model", "Requests", *(name.capitalize() for name in shown)), rows, width) if rows else ""


def _latency_table(document: Mapping[str, Any], width: int | None) -> str:
    rows = []
    for name, entry in document["models"].items():
        for title, key in (("answer", "latency_ms"), ("first response", "first_response_ms")):
            before, now = entry[key]["before"], entry[key]["now"]
            if now is not None:
                pairs = [_pair(before, now, column) for column in ("p50", "p90", "p99", "max")]
                rows.append((shown_name(name), title, *pairs))
    if not rows:
        return ""
    table = render_table(("Model", "Milliseconds", "p50", "p90", "p99", "max"), rows, width)
    return f"{table}\nbefore -> now; before: {document['latency_before_measured']}, now: by this client"


def _pair(before: Mapping[str, float] | None, now: Mapping[str, float], column: str) -> str:
    old = "-" if before is None else f"{before[column]:.2f}"
    return f"{old} -> {now[column]:.2f}"


def _examples(document: Mapping[str, Any]) -> str:
    lines = []
    for example in document["examples"]:
        name = f" (id {shown_name(example['id'])})" if example["id"] else ""
        lines.append(f"request {example['request']}, {shown_name(example['model'])}{name}: {example['verdict']}")
        lines += [f"    {line}" for told in example["details"] for line in shown_lines(told).split("\n")]
    return "\n".join(lines)


def _conclusion(document: Mapping[str, Any], stream: TextIO) -> str:
    lines = []
    if document["late"]["count"]:
        late = document["late"]
        sent = "1 request was" if late["count"] == 1 else f"{late['count']} requests were"
        lines.append(f"{sent} sent late, by {late['max_ms']:.0f} ms at most: the pace could not be kept")
    if not document["is_complete"]:
        lines.append(painted(f"INCOMPLETE: {shown_lines(document['end_reason'])}", "red", stream))
    lines += [painted(f"{sentence}.", _COLOURS[is_good], stream) for is_good, sentence in conclusions(document)]
    return "\n".join(lines)
