"""`trireme replay`: plays a recording back against a server, and compares its answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trireme.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from trireme.tools.record.reading import RecordingReader
    from trireme.tools.replay.options import ReplayOptions
    from trireme.tools.replay.results import Results
    from trireme.tools.replay.run import Replayed

SUMMARY = "play a recording back against a server, and compare answers, latencies and errors"

_DESCRIPTION = """Sends the requests of a recording again, at their own pace or faster, to any server of the
v2 protocol, and compares its answers with the recorded ones or with those of a second server."""
_EXIT_CODES = """exit codes:
  0  every request was sent, and no answer differs
  1  answers differ, requests fail that did not, or some could not be sent
  2  the command line or the file cannot be used
  3  no server answers, or it went away half way; what there is is reported
  130  Ctrl+C; what there is is reported"""
_DIFFERENT, _GONE = 1, 3


def main(arguments: Sequence[str]) -> int:
    """Replays; the exit code of the process."""
    from trireme.cli.client import server_words  # the other commands need none of it

    return server_words.run_command(make_parser(), arguments, _run)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    from trireme.cli.client import server_words
    from trireme.config.options.flag_parser import FlagParser

    parser = FlagParser(
        "trireme replay",
        usage="trireme replay FILE [URL] [options]",
        description=_DESCRIPTION,
        epilog=f"{server_words.ENVIRONMENT}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="what 'trireme record' has written")
    parser.add_argument("place", nargs="?", metavar="URL", help="the server; the same as --url")
    parser.add_argument("--show", action="store_true", help="what is in the file; nothing is sent")
    pace = parser.add_argument_group("pace")
    pace.add_argument("--speed", default="1", metavar="N|max", help="so many times as fast; default: 1, its own pace")
    pace.add_argument("--connections", type=int, default=32, metavar="N", help="at most so many at a time; default: 32")
    what = parser.add_argument_group("what is sent")
    what.add_argument("--model", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    what.add_argument("--limit", type=int, metavar="N", help="the first N requests")
    what.add_argument("--map", action="append", default=[], metavar="OLD=NEW", help="ask NEW for what OLD was asked")
    what.add_argument("--version", metavar="N", help="ask this version of the models")
    what.add_argument("--grpc-url", metavar="URL", help="requests that came over gRPC go here, the others to URL")
    _add_comparison(parser)
    report = parser.add_argument_group("report")
    report.add_argument("--json", metavar="FILE", help="the report as JSON; - is the standard output")
    report.add_argument("--html", metavar="FILE", help="the report as a page of its own")
    report.add_argument("--examples", type=int, default=20, metavar="N", help="differing requests shown; default: 20")
    server_words.add_server_words(parser)
    return parser


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("comparison")
    group.add_argument("--baseline", metavar="URL", help="ask this server too, and compare with its answers")
    group.add_argument("--rtol", type=float, metavar="X", help="relative tolerance of floats; default: 1e-4 for FP32")
    group.add_argument("--atol", type=float, metavar="X", help="absolute tolerance of floats; default: 1e-6 for FP32")
    group.add_argument(
        "--ignore", action="append", default=[], metavar="OUTPUT", help="an output that may differ; may be repeated"
    )
    group.add_argument(
        "--ignore-key",
        action="append",
        default=[],
        metavar="KEY",
        help="a member of JSON texts that may differ, besides id, request_id, created and timestamp",
    )


def _run(found: argparse.Namespace) -> int:
    from trireme.tools.record.reading import RecordingReader

    options = _options(found)
    recording = RecordingReader(found.file)
    try:
        if found.show:
            _show(recording)
            return 0
        _check_reports(found)
        return _replay(recording, options, found)
    finally:
        recording.close()


def _replay(recording: RecordingReader, options: ReplayOptions, found: argparse.Namespace) -> int:
    from dataclasses import replace

    from trireme.cli.client.server_words import connection_options
    from trireme.tools.record.progress import Progress
    from trireme.tools.replay.connecting import client_maker
    from trireme.tools.replay.report import ReportHeading, changes_text, report_document
    from trireme.tools.replay.run import Replay

    found.url = found.place or found.url
    connection = connection_options(found)
    new_client = client_maker(connection, found.grpc_url)
    new_baseline = None if found.baseline is None else client_maker(replace(connection, url=found.baseline), None)
    progress = Progress(sys.stderr)

    def tell(results: Results, planned: int) -> None:
        progress.show(f"{results.sent_count} of {planned} requests, {results.bad_count} differ or fail")

    replayed = Replay(recording, options, new_client, new_baseline, tell).run()
    progress.clear()
    heading = ReportHeading(
        found.file,
        new_client("").place,
        "the recorded answers" if new_baseline is None else new_baseline("").place,
        "inside the recorded server" if new_baseline is None else "by this client, of the other server",
        "as fast as it answers" if options.speed is None else f"at {options.speed:g} times the recorded pace",
        changes_text(options),
    )
    _report(report_document(heading, replayed), found)
    return _exit_code(replayed)


def _report(document: dict[str, Any], found: argparse.Namespace) -> None:
    import json

    from trireme.tools.replay.html_report import html_report
    from trireme.tools.replay.text_report import text_report

    if found.json == "-":
        print(json.dumps(document, indent=2))
    else:
        print(text_report(document, sys.stdout))
        if found.json is not None:
            _write(found.json, json.dumps(document, indent=2) + "\n")
    if found.html is not None:
        _write(found.html, html_report(document))


def _check_reports(found: argparse.Namespace) -> None:
    """Told before the replay, which would be in vain."""
    from pathlib import Path

    from trireme.tools.client.errors import InputError
    from trireme.tools.result_files import unwritable

    for path in filter(None, (found.html, None if found.json == "-" else found.json)):
        if reason := unwritable(Path(path)):
            raise InputError(f"cannot write the report to '{path}': {reason}")


def _write(path: str, text: str) -> None:
    from trireme.tools.client.errors import InputError

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot write the report to '{path}': {error.strerror}") from None


def _exit_code(replayed: Replayed) -> int:
    if replayed.is_server_gone:
        return _GONE
    if replayed.is_interrupted:
        return INTERRUPTED
    return 0 if replayed.is_success else _DIFFERENT


def _options(found: argparse.Namespace) -> ReplayOptions:
    from trireme.tools.client.errors import InputError
    from trireme.tools.replay.options import DEFAULT_IGNORED_KEYS, CompareOptions, ReplayOptions

    renamed = {}
    for word in found.map:
        old, separator, new = word.partition("=")
        if not separator or not old or not new:
            raise InputError(f"'{word}' is not of the form OLD=NEW")
        renamed[old] = new
    for flag in ("connections", "limit"):
        value = getattr(found, flag)
        if value is not None and value < 1:
            raise InputError(f"--{flag} is at least 1")
    for flag in ("rtol", "atol"):
        value = getattr(found, flag)
        if value is not None and not 0 <= value < float("inf"):
            raise InputError(f"--{flag} is a number of at least 0, not {value:g}")
    return ReplayOptions(
        speed=_speed(found.speed),
        connections=found.connections,
        models=frozenset(found.model),
        limit=found.limit,
        renamed=renamed,
        version=found.version,
        compare=CompareOptions(
            found.rtol, found.atol, frozenset(found.ignore), DEFAULT_IGNORED_KEYS | frozenset(found.ignore_key)
        ),
        shown_differences=max(0, found.examples),
    )


def _speed(word: str) -> float | None:
    from trireme.tools.client.errors import InputError

    if word == "max":
        return None
    try:
        speed = float(word)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise InputError(f"--speed is a number above 0, or max, not '{word}'")
    return speed


def _show(recording: RecordingReader) -> None:
    from trireme.observe.terminal.appearance import line_width
    from trireme.observe.terminal.plain_text import one_line, shown_name
    from trireme.observe.terminal.table import render_table

    contents = recording.contents
    for begin in contents.begins:
        print(one_line(begin, 200))
    count = len(contents.places)
    print(f"{count} {'request' if count == 1 else 'requests'} in {contents.seconds:.1f} s")
    rows = [(shown_name(name), str(count)) for name, count in sorted(contents.models.items())]
    if rows:
        print(render_table(("Model", "Requests"), rows, line_width(sys.stdout)))
    for told in contents.warnings():
        print(f"warning: {told}", file=sys.stderr)
