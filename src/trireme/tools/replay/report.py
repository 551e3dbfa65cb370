"""The report of a replay as data: what the terminal, the JSON file and the page all show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trireme.tools.replay.comparison import Verdict
from trireme.tools.replay.options import ReplayOptions
from trireme.tools.replay.results import ModelResult, percentiles_ms
from trireme.tools.replay.run import Replayed

_COLUMNS = ("same", "differs", "fails now", "failed before", "same error", "other error", "not compared")
_ALWAYS = ("same", "differs", "fails now")
_REST = ("not replayable", "no answer")


@dataclass(frozen=True, slots=True)
class ReportHeading:
    """What was played against what."""

    recording: str
    server: str
    compared_with: str
    """The recording, or the other server."""
    before_measured: str
    """Where the latencies before were measured: inside the server, or by a client like the ones now."""
    pace: str
    changes: str = ""
    """What was asked in place of what is recorded; empty where nothing was."""


def changes_text(options: ReplayOptions) -> str:
    """The models and the version that are asked in place of the recorded ones, in words."""
    found = [f"{name} as {other}" for name, other in sorted(options.renamed.items())]
    if options.version is not None:
        found.append(f"version {options.version}" if options.version else "the server's choice of version")
    return ", ".join(found)


def report_document(heading: ReportHeading, replayed: Replayed) -> dict[str, Any]:
    """Everything, ready for JSON."""
    results = replayed.results
    return {
        "recording": heading.recording,
        "server": heading.server,
        "compared_with": heading.compared_with,
        "latency_before_measured": heading.before_measured,
        "pace": heading.pace,
        "asked_instead": heading.changes,
        "is_complete": not replayed.end_reason,
        "end_reason": replayed.end_reason,
        "requests": replayed.planned_count,
        "sent": results.sent_count,
        "seconds": round(replayed.seconds, 3),
        "requests_per_second": round(results.sent_count / replayed.seconds, 2) if replayed.seconds else 0.0,
        "verdicts": {verdict.value: results.count(verdict) for verdict in Verdict},
        "late": {"count": results.late_count, "max_ms": round(results.most_late_ns / 1e6, 3)},
        "warnings": list(replayed.warnings),
        "models": {name: _model(result) for name, result in sorted(results.models.items())},
        "errors": [
            {"model": model, "error": message, "count": count}
            for (model, message), count in results.error_counts.most_common(20)
        ],
        "examples": [
            {
                "request": example.number,
                "model": example.model,
                "id": example.request_id,
                "verdict": example.verdict.value,
                "details": list(example.details[:10]),
            }
            for example in results.examples
        ],
    }


def shown_verdicts(document: Mapping[str, Any]) -> list[str]:
    """The columns of the answers: those that everybody looks for, and those that were given."""
    return [name for name in (*_COLUMNS, *_REST) if name in _ALWAYS or document["verdicts"][name]]


def conclusions(document: Mapping[str, Any]) -> list[tuple[bool | None, str]]:
    """What is to be made of it, in sentences, each with whether it is good; None where it is neither."""
    verdicts = document["verdicts"]
    silent, alone, unsent = verdicts["no answer"], verdicts["not compared"], verdicts["not replayable"]
    bad = verdicts["differs"] + verdicts["fails now"] + verdicts["other error"]
    found: list[tuple[bool | None, str]] = []
    if silent:
        found.append((False, "1 request was not answered" if silent == 1 else f"{silent} requests were not answered"))
    if unsent:
        found.append((False, f"{unsent} {'request' if unsent == 1 else 'requests'} could not be sent"))
    if alone:
        found.append((None, f"{alone} {'answer' if alone == 1 else 'answers'} had none to be compared with"))
    if bad:
        found.append((False, "1 answer differs or fails" if bad == 1 else f"{bad} answers differ or fail"))
    elif not document["sent"]:
        found.append((False, "No request was sent"))
    elif document["is_complete"] and document["sent"] > silent + alone:
        found.append((True, "No answer differs"))
    return found


def _model(result: ModelResult) -> dict[str, Any]:
    return {
        "requests": sum(result.verdicts.values()),
        "verdicts": {verdict.value: count for verdict, count in result.verdicts.items()},
        "latency_ms": {"before": percentiles_ms(result.before_ns), "now": percentiles_ms(result.now_ns)},
        "first_response_ms": {
            "before": percentiles_ms(result.first_before_ns),
            "now": percentiles_ms(result.first_now_ns),
        },
    }
