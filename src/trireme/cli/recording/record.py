"""`trireme record`: requests of a running server to a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trireme.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from trireme.tools.client.http_client import HttpClient
    from trireme.tools.record.session import RecordOptions
    from trireme.tools.record.writing import RecordingFile

SUMMARY = "record requests of a running server, and their answers, to a file"

_DESCRIPTION = """Has a running server record the requests of its clients, over HTTP and gRPC, and their
answers. It goes on until a limit is reached, or Ctrl+C. 'trireme replay' plays the file back.

The server has to be started with --allow-recording=true, and a key needs the group 'recording'. The
file holds what clients sent: only you may read it."""
_EXIT_CODES = """exit codes:
  0  done
  1  the server answered with an error, such as that it may not record
  2  the command line or the file cannot be used
  3  no server answers, or it went away; the file keeps what there was
  5  the file could not be written to the end, because the disk is full; it keeps what fitted
  130  Ctrl+C pressed twice; the file keeps what there was"""


def main(arguments: Sequence[str]) -> int:
    """Records; the exit code of the process."""
    from trireme.cli.client import server_words  # the other commands need none of it

    return server_words.run_command(make_parser(), arguments, _run)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    from trireme.cli.client import server_words
    from trireme.config.options.flag_parser import FlagParser

    parser = FlagParser(
        "trireme record",
        usage="trireme record [URL] -o FILE [options]",
        description=_DESCRIPTION,
        epilog=f"{server_words.ENVIRONMENT}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("place", nargs="?", metavar="URL", help="the server's HTTP port; default: localhost:8000")
    parser.add_argument("-o", "--output", metavar="FILE", help="the recording")
    parser.add_argument(
        "--append", action="store_true", help="add to a file that is there, and go on where it breaks off"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    what = parser.add_argument_group("what is recorded")
    what.add_argument("--sample", type=float, default=1.0, metavar="0.1", help="this share of requests; default: all")
    what.add_argument("--model", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    what.add_argument("--no-answers", action="store_true", help="requests alone, with nothing to compare later")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--limit", type=int, metavar="N", help="end after N requests")
    limits.add_argument("--duration", type=float, metavar="S", help="end after S seconds")
    limits.add_argument("--max-size", default="1GiB", metavar="SIZE", help="of tensor data; default: 1GiB")
    limits.add_argument(
        "--max-request-size", metavar="SIZE", help="larger requests are named, and not kept; default: 16MiB"
    )
    running = parser.add_argument_group("in place of recording")
    running.add_argument("--status", action="store_true", help="whether the server is recording, as JSON")
    running.add_argument("--stop", action="store_true", help="end the recording that somebody has begun")
    server_words.add_server_words(parser, has_grpc=False)
    return parser


def _run(found: argparse.Namespace) -> int:
    from trireme.cli.client.server_words import connection_options
    from trireme.tools.client.connect import connect_http
    from trireme.tools.client.errors import InputError

    found.url = found.place or found.url
    client = connect_http(connection_options(found))
    if found.status or found.stop:
        return _control(client, found.stop)
    if found.output is None:
        raise InputError("-o FILE says where the recording goes")
    if found.append and found.overwrite:
        raise InputError("--append and --overwrite exclude each other")
    return _record(client, _options(found), found)


def _control(client: HttpClient, is_stop: bool) -> int:
    if is_stop:
        print(client.post("/v2/recording/stop", b"{}").decode())
    else:
        print(json.dumps(client.get("/v2/recording")))
    return 0


def _record(client: HttpClient, options: RecordOptions, found: argparse.Namespace) -> int:
    from trireme.observe.terminal.plain_text import one_line
    from trireme.tools.record.progress import Progress
    from trireme.tools.record.session import RecordSession
    from trireme.tools.record.writing import RecordingFile

    session = RecordSession(client, options, Progress(sys.stderr))
    file = RecordingFile(found.output, is_appended=found.append, is_replaced=found.overwrite)
    try:
        does = "goes on recording" if session.begin(file) else "records"
        print(f"{client.place} {does} requests", file=sys.stderr)
        for told in session.warnings():
            print(f"warning: {one_line(told)}", file=sys.stderr)
        session.run(file)
    except KeyboardInterrupt:  # pressed a second time; the server ends the recording by itself
        pass
    finally:
        file.close()
    print(_told(file), file=sys.stderr)
    return INTERRUPTED if file.end is None else 0


def _options(found: argparse.Namespace) -> RecordOptions:
    from trireme.tools.client.errors import InputError
    from trireme.tools.record.session import RecordOptions

    if not 0 < found.sample <= 1:
        raise InputError("--sample is a share of the requests, above 0 and no more than 1")
    for flag in ("limit", "duration"):
        value = getattr(found, flag)
        if value is not None and not value > 0:
            raise InputError(f"--{flag} is more than 0")
    return RecordOptions(
        found.sample,
        found.limit,
        _size("max-size", found.max_size),
        found.duration,
        None if found.max_request_size is None else _size("max-request-size", found.max_request_size),
        tuple(found.model),
        not found.no_answers,
    )


def _size(flag: str, text: str) -> int:
    from trireme.config.options.sizes import parse_size
    from trireme.tools.client.errors import InputError

    size = parse_size(text)
    if not size:
        raise InputError(f"--{flag} takes bytes, such as 512MiB or 2GB, not '{text}'")
    return size


def _told(file: RecordingFile) -> str:
    from trireme.tools.record.progress import size_text

    end = file.end or {}
    seen = f" of {end['seen']}" if "seen" in end else ""
    dropped = f", {end['dropped']} dropped for want of room" if end.get("dropped") else ""
    unfinished = f", {file.unfinished_count} of them without the end of their answer" if file.unfinished_count else ""
    reason = f" ({end['end_reason']})" if end.get("end_reason") else ""
    size = size_text(file.added_bytes)
    return f"{file.path}: {file.call_count}{seen} requests{dropped}{unfinished}, {size}{reason}"
