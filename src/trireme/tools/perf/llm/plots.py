"""The plots of a run, a page each, under the names that genai-perf gives them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from trireme.tools.perf.llm.metrics import LlmMetrics
from trireme.tools.perf.llm.options import LlmOptions
from trireme.tools.perf.llm.pieces import GeneratedText
from trireme.tools.perf.llm.report import artifact_folder, write_file
from trireme.tools.plots.distributions import box_plot, heat_map, thinned
from trireme.tools.plots.page import Plot, figure, html_page
from trireme.tools.plots.svg import Series, line_plot

_INPUT, _OUTPUT = "Input Sequence Length", "Output Sequence Length"
_FIELDS = "The darker a field, the more requests are in it; a pointer over it shows how many."
_FIRST, _LATENCY, _GAP = "Time to First Token", "Request Latency", "Token-to-Token Latency"


def make_plots(metrics: LlmMetrics, answers: Sequence[GeneratedText]) -> list[Plot]:
    """Those that there is data for: answers that come whole have no first token, and numbers no length."""
    values = metrics.values
    first, inputs = values.get("time_to_first_token", []), values.get("input_sequence_length", [])
    plots = []
    if first:
        plots.append(_box(_FIRST, first))
    plots.append(_box(_LATENCY, values["request_latency"]))
    if lengths := list(zip(inputs, values.get("output_sequence_length", []), strict=False)):
        title = "Distribution of Input Sequence Lengths to Output Sequence Lengths"
        plots.append(_plot(title, heat_map(title, (_INPUT, _OUTPUT), lengths), _FIELDS))
    if first:
        plots.append(
            _scatter(f"{_FIRST} vs Input Sequence Lengths", _INPUT, _FIRST, list(zip(inputs, first, strict=True)))
        )
    if gaps := _gaps(answers):
        plots.append(_scatter(f"{_GAP} vs Output Token Position", "Output Token Position", _GAP, gaps))
    return plots


def write_plots(plots: Sequence[Plot], options: LlmOptions) -> list[Path]:
    """Writes them below the folder for artifacts; raises PerfError."""
    folder = artifact_folder(options)
    written = []
    for plot in plots:
        parts = [f"<h1>{escape(folder.name)}</h1>", figure(plot)]
        path = folder / "plots" / f"{plot.name}.html"
        write_file(path, html_page(f"{plot.title}, {folder.name}", parts).encode())
        written.append(path)
    return written


def _gaps(answers: Sequence[GeneratedText]) -> list[tuple[float, float]]:
    """The place of each piece but the first, and the milliseconds since the one before."""
    return [
        (float(place), (later - earlier) / 1e6)
        for answer in answers
        for place, (earlier, later) in enumerate(pairwise(answer.times_ns), 1)
    ]


def _box(title: str, values: Sequence[float]) -> Plot:
    return _plot(title, box_plot(title, f"{title} (ms)", values), _thinned_note(len(values)))


def _scatter(title: str, x_label: str, y_name: str, points: Sequence[tuple[float, float]]) -> Plot:
    kept = [points[number] for number in thinned(len(points))]
    told = [f"{x:,.0f}: {y:,.2f} ms" for x, y in kept]
    svg = line_plot(title, x_label, f"{y_name} (ms)", [Series("", kept, told, is_joined=False)])
    return _plot(title, svg, _thinned_note(len(points)))


def _thinned_note(count: int) -> str:
    shown = len(thinned(count))
    return "" if shown == count else f"{shown:,} of {count:,} values are shown as marks."


def _plot(title: str, svg: str, note: str = "") -> Plot:
    return Plot("_".join(title.lower().split()), title, svg, note)
