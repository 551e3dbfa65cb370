"""The words behind `trireme deploy`: its own options, the ports, and whatever is for the server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from trireme.cli.command_line import CommandEnded
from trireme.tools.deploy.options import DeployOptions
from trireme.tools.deploy.sizes import parse_size

_PORTS = ("http-port", "grpc-port", "metrics-port", "http-address", "grpc-address", "metrics-address")
"""Options of the server that need no `--` in front."""
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_EXAMPLES = """examples:
  trireme deploy facebook/opt-125m
  trireme deploy ./my-model --name chat --device cuda:1 --dtype bfloat16 --http-port 9000
  trireme deploy tiiuae/falcon-7b --dry-run
  trireme deploy facebook/opt-125m -- --log-verbose=1

exit codes: 1 wrong options, or the server could not start; 2 there is no such model, or it cannot be served;
3 the hub cannot be reached; 4 it does not fit into memory; 5 the name is taken"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = " (options of the server go after --)" if message.startswith("unrecognized") else ""
        print(f"trireme deploy: {message}{hint}\nSee: trireme deploy --help", file=sys.stderr)
        raise CommandEnded(1)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise CommandEnded(status)


def parse_arguments(arguments: Sequence[str]) -> tuple[DeployOptions, list[str]]:
    """What to deploy, and the words for the server; raises CommandEnded after help or a mistake."""
    words = list(arguments)
    cut = words.index("--") if "--" in words else len(words)
    found = _parser().parse_args(words[:cut])
    server_words = [f"--{port}={value}" for port in _PORTS if (value := getattr(found, port.replace("-", "_")))]
    options = DeployOptions(
        model=found.model,
        task=found.task,
        name=found.name,
        repository=found.repository,
        device=found.device,
        dtype=found.dtype,
        revision=found.revision,
        batch_size=found.batch,
        max_new_tokens=found.max_new_tokens,
        length_tokens=found.length,
        memory_bytes=None if found.memory is None else parse_size(found.memory, "memory"),
        is_ejected=found.eject,
        trusts_remote_code=found.trust_remote_code,
        uses_chat_template=not found.no_chat,
        is_forced=found.force,
        is_overwriting=found.overwrite,
        is_dry_run=found.dry_run,
        is_served=not found.no_serve,
    )
    return options, [*server_words, *words[cut + 1 :]]


def _parser() -> _Parser:
    parser = _Parser(
        prog="trireme deploy",
        usage="trireme deploy MODEL [options] [-- server options]",
        epilog=_EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="id of a model on the Hugging Face hub, or a folder with one")
    what = parser.add_argument_group("what is served")
    what.add_argument("--task", help="what the model is for, where its configuration does not tell")
    what.add_argument("--name", help="what it is called; the last part of MODEL unless given")
    what.add_argument("--repository", type=Path, default=Path("model_repository"), help="default: model_repository")
    what.add_argument("--revision", help="branch, tag or commit on the hub")
    what.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")
    what.add_argument(
        "--no-chat", action="store_true", help="leave the model's chat template aside: prompts as they are"
    )
    what.add_argument("--eject", action="store_true", help="write a model.py to edit instead of naming the backend")
    how = parser.add_argument_group("how it runs")
    how.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, hpu; default: the best there is")
    how.add_argument("--dtype", choices=_DTYPES, default="auto", help="default: as the model was saved")
    how.add_argument("--batch", type=_positive, default=8, metavar="N", help="requests that run together; default: 8")
    how.add_argument("--max-new-tokens", type=_positive, default=64, metavar="N", help="of one answer; default: 64")
    size = parser.add_argument_group("memory")
    size.add_argument("--length", type=_positive, metavar="N", help="tokens of a prompt and its answer to count with")
    size.add_argument("--memory", metavar="SIZE", help="compare with this, such as 24GiB, not with what is free now")
    size.add_argument("--force", action="store_true", help="go on where the model does not fit")
    steps = parser.add_argument_group("steps")
    steps.add_argument("--dry-run", action="store_true", help="print the memory it takes and the files, and end")
    steps.add_argument("--no-serve", action="store_true", help="fetch and write, but start no server")
    steps.add_argument("--overwrite", action="store_true", help="write files anew that are there and differ")
    server = parser.add_argument_group("server (its other options go after --)")
    for port in _PORTS:
        server.add_argument(f"--{port}", metavar=port.rpartition("-")[2].upper())
    return parser


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, found '{text}'") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, found {number}")
    return number
