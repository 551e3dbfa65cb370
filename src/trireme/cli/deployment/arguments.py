"""The words behind `trireme deploy`: its own options, the ports, and whatever is for the server."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from trireme.cli.endings import CommandEnded
from trireme.config.options.flag_parser import FlagParser, positive
from trireme.config.options.option import OptionError
from trireme.config.options.parser import parse_options
from trireme.config.options.scanner import HelpRequested
from trireme.config.options.server import ServerOptions
from trireme.config.options.usage import usage_text
from trireme.tools.deploy.checks.task import TASKS
from trireme.tools.deploy.options import BACKENDS, DeployOptions
from trireme.tools.deploy.sizes import parse_size

_PROGRAM = "trireme deploy"
_ARGUMENTS = "MODEL [options] [-- server options]"
_SERVICES = {"http": "HTTP", "grpc": "gRPC", "metrics": "metrics"}
_PORTS = (*(f"{service}-port" for service in _SERVICES), *(f"{service}-address" for service in _SERVICES))
"""Options of the server that need no `--` in front."""
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_WIDTH = 78
_HELP_COLUMN = 29
_SUMMARY = """Fetches a Hugging Face model, counts the memory that it takes, writes a folder
for it into a model repository, and serves it until Ctrl+C."""
_EXAMPLES = """examples:
  trireme deploy facebook/opt-125m
  trireme deploy ./my-model --name chat --device cuda:1 --http-port 9000
  trireme deploy tiiuae/falcon-7b --dry-run --dtype bfloat16 --memory 24GiB
  trireme deploy facebook/opt-125m -- --log-verbose=1

environment:
  HF_TOKEN         token for private and gated models; or PRIVATE_REPO_TOKEN
  HF_HOME          where fetched models are kept; default: ~/.cache/huggingface
  HF_HUB_OFFLINE   1: take models from there only, ask nobody
  HF_ENDPOINT      the address of another hub

exit codes:
  0  served until it was stopped, or all was written
  1  the options are wrong, or the server could not start or load the model
  2  there is no such model, or it cannot be served
  3  the hub cannot be reached, and the model is not on this machine
  4  the model does not fit into memory
  5  the repository has another model of that name
  130  stopped with Ctrl+C before the model was ready"""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN)


class _Parser(FlagParser):
    def error(self, message: str) -> NoReturn:
        hint = " (options of the server go after --)" if message.startswith("unrecognized") else ""
        print(f"trireme deploy: {self.explained(message)}{hint}\nSee: trireme deploy --help", file=sys.stderr)
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
        backend=found.backend,
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


def read_server_options(repository: Path, words: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """The server's options; raises CommandEnded after a mistake. Another model of the repository that is broken is no
    reason not to serve this one."""
    defaults = ServerOptions(exit_on_error=False)
    try:
        parsed = parse_options(
            [f"--model-repository={repository}", *words], environ, program=_PROGRAM, defaults=defaults
        )
    except HelpRequested:
        print(usage_text(_PROGRAM, _ARGUMENTS))
        raise CommandEnded(0) from None
    except OptionError as error:
        print(f"{_PROGRAM}: {str(error).removeprefix(f'{_PROGRAM}: ')}\nSee: trireme serve --help", file=sys.stderr)
        raise CommandEnded(1) from None
    for sentence in parsed.deprecations:
        print(sentence, file=sys.stderr)
    return parsed.options


def _parser() -> _Parser:
    parser = _Parser(
        prog=_PROGRAM,
        usage=f"{_PROGRAM} {_ARGUMENTS}",
        description=_SUMMARY,
        epilog=f"{_tasks()}\n\n{_EXAMPLES}",
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
        add_help=False,
    )
    parser.add_argument("model", metavar="MODEL", help="id of a model on the Hugging Face hub, or a folder with one")
    _add_model_options(parser.add_argument_group("what is served"))
    _add_run_options(parser.add_argument_group("how it runs"))
    _add_step_options(parser.add_argument_group("steps"))
    server = parser.add_argument_group("server (its other options go after --, see trireme serve --help)")
    defaults = ServerOptions()
    for port in _PORTS:
        service, _, kind = port.partition("-")
        default = getattr(defaults, f"{service}_{kind}") or "that of HTTP"
        server.add_argument(f"--{port}", metavar=kind.upper(), help=f"of {_SERVICES[service]}; default: {default}")
    return parser


def _add_model_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--task", help="what the model is for; default: what its config.json says")
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        metavar="BACKEND",
        help="llm, transformers; default: llm for models that continue text",
    )
    group.add_argument("--name", help="what it is called when it is served; default: the last part of MODEL")
    group.add_argument(
        "--repository",
        type=Path,
        default=Path("model_repository"),
        metavar="FOLDER",
        help="where its folder is written; default: model_repository",
    )
    group.add_argument("--revision", help="branch, tag or commit on the hub; default: main")
    group.add_argument("--trust-remote-code", action="store_true", help="run Python code that comes with the model")
    group.add_argument(
        "--no-chat", action="store_true", help="leave the model's chat template aside: prompts as they are"
    )
    group.add_argument(
        "--eject",
        action="store_true",
        help="write a model.py to edit instead of naming the backend (text-generation only)",
    )


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, hpu; default: the best there is")
    group.add_argument(
        "--dtype",
        choices=_DTYPES,
        default="auto",
        metavar="DTYPE",
        help="float32, bfloat16, float16; default: as the model was saved",
    )
    group.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="requests that run together; default: 256 with the llm backend, else 8",
    )
    group.add_argument(
        "--max-new-tokens",
        type=positive,
        metavar="N",
        help="tokens of one answer; default: what fits with the llm backend, else 64",
    )
    group.add_argument(
        "--length",
        type=positive,
        metavar="N",
        help="tokens of a prompt and its answer to count memory for; default: what the model takes, 1024 at most",
    )
    group.add_argument(
        "--memory", metavar="SIZE", help="compare with this, such as 24GiB or 24GB; default: what is free now"
    )


def _add_step_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dry-run", action="store_true", help="print the memory it takes and the files, and end")
    group.add_argument("--no-serve", action="store_true", help="fetch and write, but start no server")
    group.add_argument(
        "--force", action="store_true", help="go on where the model does not fit, or seems not to be loadable"
    )
    group.add_argument("--overwrite", action="store_true", help="write files anew that are there and differ")
    group.add_argument("-h", "--help", action="help", help="print this and end")


def _tasks() -> str:
    return textwrap.fill(f"tasks: {', '.join(TASKS)}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
