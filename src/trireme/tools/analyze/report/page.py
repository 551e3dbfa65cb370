"""One self-contained HTML page: the verdict, the table, the plots, the configuration to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from trireme import __version__
from trireme.tools.analyze.ranking import Ranked
from trireme.tools.analyze.report.caution import cautions
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.report.tables import Table, detail_table, number, summary_table
from trireme.tools.plots.page import Plot, figure, html_page


def summary_page(subject: Subject, plots: Sequence[Plot], configs: Sequence[tuple[str, str]], advice: str) -> str:
    """`configs` are titles and texts of the files to use."""
    best = subject.name_of(subject.best.settings) if subject.best else None
    parts = [
        f"<h1>{escape(subject.title)}</h1>",
        f'<p class="verdict">{escape(verdict(subject))}</p>',
        *(f'<p class="note">{escape(sentence)}</p>' for sentence in cautions(subject)),
        _table(summary_table(subject), best),
        f'<h2>Measured</h2><div class="plots">{"".join(map(figure, plots))}</div>',
    ]
    if configs:
        parts.append("<h2>The configuration to use</h2>")
        parts += [f"<h3>{escape(title)}</h3><pre>{escape(text)}</pre>" for title, text in configs]
        parts.append(f'<p class="note">{escape(advice)}</p>')
    parts.append("<h2>Every load</h2>")
    for one in subject.shown():
        detail = detail_table(subject, one)
        parts.append(f"<details><summary>{escape(detail.title)}</summary>{_table(detail)}</details>")
    parts.append(f'<p class="note">{escape(_method(subject))}</p>')
    return html_page(f"Analysis of {subject.title}", parts)


def detailed_page(subject: Subject, one: Ranked, plots: Sequence[Plot], config: str) -> str:
    """One variant by itself."""
    table = detail_table(subject, one)
    parts = [
        f"<h1>{escape(table.title)}</h1>",
        _table(table),
        f'<div class="plots">{"".join(map(figure, plots))}</div>',
        f"<h2>Its configuration</h2><pre>{escape(config)}</pre>",
    ]
    return html_page(f"Details of {table.title}", parts)


def verdict(subject: Subject) -> str:
    """The result in a sentence or two."""
    best, default = subject.best, subject.default
    if best is None:
        return "Nothing could be measured."
    name = subject.name_of(best.settings)
    if not best.is_satisfying:
        return f"No configuration meets the constraints; {name} comes nearest: {_achieves(best)}."
    text = f"{name} is the best of {_counted(subject)}: {_achieves(best)}."
    if best.best.is_probe:
        text += " It was only looked at for a short time; nothing that was measured at length meets the constraints."
    if default is None or default is best:
        return text
    tag = "output_token_throughput" if subject.has("output_token_throughput") else "perf_throughput"
    before = sum(one.metrics.get(tag, 0.0) for one in default.best.measured)
    after = sum(one.metrics.get(tag, 0.0) for one in best.best.measured)
    if before <= 0:
        return text
    kept = "" if default.is_satisfying else ", which does not meet the constraints"
    return f"{text} That is {after / before:.2f} times what the model's own configuration does{kept}."


def _counted(subject: Subject) -> str:
    count = len(subject.ranked)
    return f"{count} configurations" if count > 1 else "one configuration"


def _achieves(one: Ranked) -> str:
    texts = []
    for load, measured in zip(one.best.trial.loads, one.best.measured, strict=True):
        clients = _several(load.concurrency, "client")
        source = clients if load.request_rate is None else f"{load.request_rate:g} requests/s"
        texts.append(f"{_rate(measured.metrics)}, from {source}")
    return "; ".join(texts)


def _rate(metrics: Mapping[str, float]) -> str:
    """By tokens where there are any: they are what a language model is tuned for."""
    inferences, latency = number(metrics["perf_throughput"]), number(metrics.get("perf_latency_p99"))
    if "output_token_throughput" not in metrics:
        return f"{inferences} inferences per second with a p99 latency of {latency} ms"
    first = metrics.get("time_to_first_token_p99")
    waited = f"a p99 latency of {latency} ms" if first is None else f"a p99 time to first token of {number(first)} ms"
    return f"{number(metrics['output_token_throughput'])} tokens per second ({inferences} answers) with {waited}"


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _method(subject: Subject) -> str:
    count = sum(len(one.results) for one in subject.ranked)
    mode = f" by the search '{subject.search_mode}'" if subject.search_mode else ""
    took = f" in {subject.seconds:.0f} s" if subject.seconds else ""
    loads = "1 load was" if count == 1 else f"{count} loads were"
    return f"{loads} measured{mode}{took}. Trireme {__version__}."


def _table(table: Table, marked: str | None = None) -> str:
    """With the row of this name marked."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headers)
    rows = []
    for row in table.rows:
        mark = ' class="best"' if row[0] == marked else ""
        rows.append(f"<tr{mark}>{''.join(map(_cell, row))}</tr>")
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _cell(text: str) -> str:
    """With places to break at: between what several models have, and the words of a name."""
    return f"<td>{escape(text).replace(',', ',<wbr>').replace('_', '_<wbr>')}</td>"
