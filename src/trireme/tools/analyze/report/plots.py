"""The plots of a report: throughput against latency, stages, batch sizes, memory, utilisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trireme.tools.analyze.metrics import MACHINE_RAM
from trireme.tools.analyze.ranking import Ranked
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.trial import BatchTime, Measured, Result
from trireme.tools.plots.frame import COLOURS
from trireme.tools.plots.page import Plot
from trireme.tools.plots.svg import BarGroup, Series, bar_plot, line_plot

_STAGES = {
    "client and network": "",
    "queue": "perf_server_queue",
    "compute input": "perf_server_compute_input",
    "compute infer": "perf_server_compute_infer",
    "compute output": "perf_server_compute_output",
}
_STAGE_COLOURS = dict(zip(_STAGES, (COLOURS[7], COLOURS[1], COLOURS[6], COLOURS[0], COLOURS[2]), strict=True))
_TOKEN_STAGES = {"first token": "time_to_first_token_avg", "rest of the answer": ""}
_TOKEN_COLOURS = {"first token": COLOURS[1], "rest of the answer": COLOURS[0]}


def make_plots(subject: Subject) -> list[Plot]:
    """Those that there is data for."""
    shown = subject.shown()
    if not shown:
        return []
    plots = [_throughput(subject, shown), _stages(subject, shown)]
    for plot in (*_all_batches(subject, shown), _memory(subject, shown), _utilisation(subject, shown)):
        if plot is not None:
            plots.append(plot)
    return plots


def colours_of(subject: Subject) -> dict[str, str]:
    """By variant; the model's own is grey."""
    found, free = {}, iter(COLOURS[:7] * 8)
    for one in subject.shown():
        is_own = all(setting.is_default for _, setting in one.settings)
        found[subject.name_of(one.settings)] = COLOURS[7] if is_own else next(free)
    return found


def _throughput(subject: Subject, shown: list[Ranked]) -> Plot:
    colours = colours_of(subject)
    tag = "output_token_throughput" if subject.has("output_token_throughput") else "perf_throughput"
    series = []
    farthest = 1.5 * max((_p99(result) for one in shown for result in one.results), default=0.0)
    for one in shown:
        name = subject.name_of(one.settings)
        predicted = sorted(
            (trial.loads[0].level, metrics["perf_latency_p99"], metrics["perf_throughput"])
            for trial, metrics in subject.predictions
            if trial.settings == one.settings
        )
        line = [(latency, rate) for _, latency, rate in predicted if latency <= farthest]
        if line and tag == "perf_throughput":
            series.append(Series(name, line, colour=colours[name], has_marks=False, is_dashed=True))
        points = [(_p99(result), _total(result, tag), result.trial.loads[0].level) for result in one.results]
        titles = [f"{name}, {_clients(level)}: {rate:.1f}/s at p99 {latency:.2f} ms" for latency, rate, level in points]
        series.append(Series(name, [(x, y) for x, y, _ in points], titles, colours[name]))
    limits = [
        (one.most, f"p99 ≤ {one.most:g} ms")
        for _, one in subject.ranking.constraints()
        if one.tag == "perf_latency_p99" and one.most is not None and one.most <= farthest
    ]
    y_label = "tokens per second" if tag != "perf_throughput" else "inferences per second"
    svg = line_plot("Throughput against latency", "p99 latency (ms)", y_label, series, limits)
    note = "Marks are measured." + (
        " Dashed lines are what the queueing model predicts." if subject.predictions else ""
    )
    return Plot("throughput_v_latency", "Throughput against latency", svg, note)


def _stages(subject: Subject, shown: list[Ranked]) -> Plot:
    """Of the average request under each variant's best load."""
    if subject.is_language_model:
        groups = [BarGroup(subject.name_of(one.settings), _token_parts(one.best.measured[0])) for one in shown]
        svg = bar_plot("Latency by stage", "average ms of an answer", groups, _TOKEN_COLOURS, is_stacked=True)
    else:
        groups = [BarGroup(subject.name_of(one.settings), _parts(one.best.measured[0])) for one in shown]
        svg = bar_plot("Latency by stage", "average ms of a request", groups, _STAGE_COLOURS, is_stacked=True)
    return Plot("latency_breakdown", "Latency by stage", svg, "Under the load at which each configuration is best.")


def _all_batches(subject: Subject, shown: list[Ranked]) -> list[Plot | None]:
    """Of the model that is asked, and of those that its requests go through."""
    inner = list(dict.fromkeys(name for one in shown for name, _ in one.best.measured[0].inner_batches))
    title = f"Batch sizes of {subject.loaded[0]}" if inner else "Batch sizes"
    own = [one.best.measured[0].batches for one in shown]
    plots = [_batches(subject, shown, own, "batch_sizes", title)]
    for number, name in enumerate(inner):
        of_it = [dict(one.best.measured[0].inner_batches).get(name, ()) for one in shown]
        plots.append(_batches(subject, shown, of_it, f"batch_sizes_{number + 1}", f"Batch sizes of {name}"))
    return plots


def _batches(
    subject: Subject, shown: list[Ranked], by_variant: Sequence[Sequence[BatchTime]], name: str, title: str
) -> Plot | None:
    """Which share of the inferences ran in batches of which size."""
    sizes = sorted({batch.size for batches in by_variant for batch in batches})
    if not sizes:
        return None
    groups = []
    for low, high in _bins(sizes):
        values = {}
        for one, batches in zip(shown, by_variant, strict=True):
            total = sum(batch.size * batch.count for batch in batches)
            inside = sum(batch.size * batch.count for batch in batches if low <= batch.size <= high)
            values[subject.name_of(one.settings)] = 100 * inside / total if total else 0.0
        groups.append(BarGroup(f"{low}" if low == high else f"{low} to {high}", values))
    svg = bar_plot(title, "% of inferences in batches of this size", groups, colours_of(subject), is_stacked=False)
    return Plot(name, title, svg, "As the server counted them.")


def _memory(subject: Subject, shown: list[Ranked]) -> Plot | None:
    tags = {"GPU memory": "gpu_used_memory", "CPU memory": "cpu_used_ram"}
    plot = _resource_plot(subject, shown, "memory", "Memory", "MB in use at most", tags)
    if plot is None or not subject.has(MACHINE_RAM):
        return plot
    return replace(plot, note="CPU memory is that of the server's whole machine, others' included.")


def _utilisation(subject: Subject, shown: list[Ranked]) -> Plot | None:
    tags = {"GPU": "gpu_utilization", "CPU": "cpu_utilization"}
    return _resource_plot(subject, shown, "utilisation", "Utilisation", "% busy on average", tags)


def _resource_plot(
    subject: Subject, shown: list[Ranked], name: str, title: str, label: str, tags: Mapping[str, str]
) -> Plot | None:
    present = {part: tag for part, tag in tags.items() if subject.has(tag)}
    if not present:
        return None
    groups = [
        BarGroup(
            subject.name_of(one.settings),
            {part: one.best.measured[0].metrics.get(tag, 0.0) for part, tag in present.items()},
        )
        for one in shown
    ]
    colours = dict(zip(present, (COLOURS[0], COLOURS[1]), strict=False))
    return Plot(name, title, bar_plot(title, label, groups, colours, is_stacked=False))


def _parts(one: Measured) -> dict[str, float]:
    server = {part: one.metrics.get(tag, 0.0) for part, tag in _STAGES.items() if tag}
    outside = max(0.0, one.metrics.get("perf_latency_avg", 0.0) - sum(server.values()))
    return {"client and network": outside, **server}


def _token_parts(one: Measured) -> dict[str, float]:
    first = one.metrics.get(_TOKEN_STAGES["first token"], 0.0)
    return {"first token": first, "rest of the answer": max(0.0, one.metrics.get("perf_latency_avg", 0.0) - first)}


def _bins(sizes: list[int]) -> list[tuple[int, int]]:
    """Each size by itself where there are few, else from one power of two to the next."""
    if len(sizes) <= 8:
        return [(size, size) for size in sizes]
    found, low = [], 1
    while low <= sizes[-1]:
        high = low * 2 - 1
        inside = [size for size in sizes if low <= size <= high]
        if inside:
            found.append((inside[0], inside[-1]))
        low *= 2
    return found


def _clients(level: float) -> str:
    return "1 client" if level == 1 else f"{level:g} clients"


def _p99(result: Result) -> float:
    return max(one.metrics.get("perf_latency_p99", 0.0) for one in result.measured)


def _total(result: Result, tag: str) -> float:
    return sum(one.metrics.get(tag, 0.0) for one in result.measured)
