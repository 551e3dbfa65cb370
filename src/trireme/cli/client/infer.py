"""`trireme infer`: one request from the shell to a running server."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trireme.tools.client.messages import InferAnswer, InferCall
    from trireme.tools.client.model import ServedModel
    from trireme.tools.client.port import ServerClient

SUMMARY = "ask a model of a running server once"

_DESCRIPTION = """One request to a model of a running server. Without a VALUE it shows what the model takes,
and a line to try.

VALUE is NAME=VALUE for the input NAME, or a value alone for the model's only required input:
  A=1,2,3,4  A=[[1,2],[3,4]]    numbers, between commas or as JSON
  text_input="Good morning"     text; ["one", "two"] for several
  A=@array.npy                  a file: .npy .npz .json .txt, a picture (.png, and .jpg and
  image=@photo.png              others with Pillow) or a sound (.wav), whose bytes are sent to
  audio=@speech.wav             BYTES inputs and whose pixels or samples to others; any other
                                file as its bytes; @- is the standard input, @@ begins a text"""


def main(arguments: Sequence[str]) -> int:
    """Asks once; the exit code of the process."""
    from trireme.cli.client import server_words  # the other commands need none of it

    return server_words.run_command(make_parser(), arguments, _run)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    from trireme.cli.client import server_words
    from trireme.config.options.flag_parser import FlagParser

    parser = FlagParser(
        "trireme infer",
        usage="trireme infer MODEL [VALUE ...] [options]",
        description=_DESCRIPTION,
        epilog=server_words.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("values", nargs="*", metavar="VALUE")
    request = parser.add_argument_group("request")
    request.add_argument(
        "-d", "--data", metavar="JSON", help='all inputs: {"NAME": value}, or {"inputs": [...]}, or @FILE'
    )
    request.add_argument("--version", default="", metavar="N", help="the model's version; default: the server's choice")
    request.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,8", help="of an input")
    request.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the request, such as max_tokens=40",
    )
    request.add_argument("--no-stream", action="store_true", help="a language model answers at once, when it is done")
    answer = parser.add_argument_group("answer")
    answer.add_argument(
        "--output", action="append", default=[], metavar="NAME", help="only this output; may be repeated"
    )
    answer.add_argument(
        "-o",
        "--write",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="an output as .npy .json .txt .png .wav, others as bytes; without NAME .json and .npz take all",
    )
    answer.add_argument("--sample-rate", type=int, default=16000, metavar="HZ", help="of a .wav file; default: 16000")
    answer.add_argument("--json", action="store_true", help="a line of JSON for each answer")
    server_words.add_server_words(parser)
    return parser


def _run(found: argparse.Namespace) -> int:
    from trireme.cli.client.server_words import connection_options, repeated_words
    from trireme.tools.client.connect import connect
    from trireme.tools.client.model import served_model
    from trireme.tools.infer.request import GivenRequest, build_call

    client = connect(connection_options(found))
    model = served_model(client, found.model, found.version)
    given = GivenRequest(
        found.values, found.data, found.shape, found.parameter, found.output, is_streamed=not found.no_stream
    )
    if given.is_empty and model.inputs:
        return _describe(model, found, repeated_words(found))
    return _ask(client, model, build_call(model, given), found)


def _describe(model: ServedModel, found: argparse.Namespace, words: list[str]) -> int:
    import dataclasses
    import json

    from trireme.observe.terminal.appearance import line_width
    from trireme.tools.infer.description import example_line, model_text

    if found.json:
        print(json.dumps({**dataclasses.asdict(model), "example": example_line(model, words)}))
    else:
        print(model_text(model, line_width(sys.stdout), words))
    return 0


def _ask(client: ServerClient, model: ServedModel, call: InferCall, found: argparse.Namespace) -> int:
    from trireme.tools.infer.printing import AnswerPrinter
    from trireme.tools.infer.writing import OutputFiles

    files = OutputFiles(model, found.write, found.sample_rate)
    printer = AnswerPrinter(sys.stdout, found.json, model.is_decoupled)
    is_printed = found.json or not found.write
    began, times = time.monotonic(), []
    try:
        for answer in _answers(client, model, call):
            if answer.outputs:
                times.append(time.monotonic() - began)
            if is_printed:
                printer.show(answer)
            files.take(answer)
    finally:
        printer.end_line()
        files.finish()
    _tell(files.written, times, time.monotonic() - began, model.is_decoupled)
    return 0


def _answers(client: ServerClient, model: ServedModel, call: InferCall) -> Iterator[InferAnswer]:
    if model.is_decoupled:
        yield from client.stream(call)
    else:
        yield client.infer(call)


def _tell(written: Mapping[Path, int], times: list[float], took_s: float, is_stream: bool) -> None:
    """What is no answer, on the error output; the time only for somebody who looks."""
    from trireme.observe.terminal.appearance import painted

    for path, size in written.items():
        print(f"{path}: {size} bytes", file=sys.stderr)
    if sys.stderr.isatty():
        first = f", first after {times[0]:.3f} s" if is_stream and times else ""
        count = f"{len(times)} {'answer' if len(times) == 1 else 'answers'} in " if is_stream else ""
        print(painted(f"[{count}{took_s:.3f} s{first}]", "dim", sys.stderr), file=sys.stderr)
