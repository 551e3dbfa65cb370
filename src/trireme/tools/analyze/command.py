"""The commands as a whole: words in, exit code out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from trireme import __version__
from trireme.config.options.flag_parser import FlagParser
from trireme.tools.analyze.command_line.config_file import read_config_file
from trireme.tools.analyze.command_line.flags import declare, without_effect
from trireme.tools.analyze.command_line.reading import read_analyze_options
from trireme.tools.analyze.errors import EXIT_CODES, INTERRUPTED, ClientError, InputError
from trireme.tools.analyze.replay import report_again, summarize_again
from trireme.tools.analyze.run import analyze

_USAGE = """Usage: {program} [-q] [-v] [-m online|offline] profile|analyze|report [options]

profile  measure models and say which configuration serves them best
analyze  tables, CSV files and pages again, from the newest checkpoint, perhaps with other goals
report   the page of single configurations: --report-model-configs a_config_2,a_config_default

'{program} profile --help' lists the options."""
_DESCRIPTION = (
    "Measures a model of a server under several configurations and loads, without restarting the server, and says "
    "which configuration serves it best."
)
_WHICH = {"report": ("--report-model-configs", "-n"), "analyze": ("--analysis-models",)}


class _Parser(FlagParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.explained(message)}\n'{self.prog} --help' lists every option.")


def run_command(program: str, arguments: Sequence[str]) -> int:
    """`trireme analyze`: models as words; with one of the original's words in front, its command line."""
    if list(arguments[:1]) in (["profile"], ["report"], ["analyze"]):
        return run_subcommand(program, arguments)
    return _reporting(program, lambda: _friendly(program, arguments))


def run_subcommand(program: str, arguments: Sequence[str]) -> int:
    """The command line of model-analyzer."""
    return _reporting(program, lambda: _subcommand(program, list(arguments)))


def _friendly(program: str, arguments: Sequence[str]) -> int:
    given = vars(make_parser(program, "").parse_intermixed_args(list(arguments)))
    verbosity, positional = _verbosity(given, 0), given.pop("models")
    return analyze(read_analyze_options(_with_file(given, verbosity), positional, True, verbosity))


def _subcommand(program: str, words: list[str]) -> int:
    verbosity = 0
    while words and words[0] not in ("profile", "report", "analyze"):
        word = words.pop(0)
        if word in ("-h", "--help"):
            print(_USAGE.format(program=program))
            return 0
        if word == "--version":
            print(f"Model Analyzer {__version__} (Trireme)")
            return 0
        if word in ("-q", "--quiet"):
            verbosity = -1
        elif word in ("-v", "--verbose"):
            verbosity = 1
        elif word in ("-m", "--mode"):
            mode = words.pop(0) if words else ""
            if mode not in ("online", "offline"):
                raise InputError(f"-m in front of the subcommand is online or offline, not '{mode}'")
        else:
            raise InputError(
                f"there is no subcommand '{word}': profile, analyze and report are\n{_USAGE.format(program=program)}"
            )
    if not words:
        print(_USAGE.format(program=program), file=sys.stderr)
        return InputError.exit_code
    name = words.pop(0)
    given = vars(make_parser(f"{program} {name}", name).parse_args(words))
    verbosity = _verbosity(given, verbosity)
    given = _with_file(given, verbosity)
    if name == "profile":
        return analyze(read_analyze_options(given, (), False, verbosity))
    return report_again(given, verbosity) if name == "report" else summarize_again(given, verbosity)


def _verbosity(given: dict[str, Any], before: int) -> int:
    """Takes the two flags out of what was given."""
    is_quiet, is_verbose = given.pop("quiet"), given.pop("verbose")
    return -1 if is_quiet else 1 if is_verbose else before


def make_parser(program: str, name: str) -> argparse.ArgumentParser:
    """The parser of a subcommand, or with no name that of `trireme analyze` itself."""
    parser = _Parser(
        prog=program,
        usage=f"{program} [options]" if name else f"{program} MODEL [MODEL ...] [options]",
        description=None if name in _WHICH else _DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if not name:
        parser.add_argument("models", nargs="*", metavar="MODEL", help="a model of the server")
    if name in _WHICH:
        parser.add_argument(*_WHICH[name], default=argparse.SUPPRESS, metavar="A,B", help="which")
    parser.add_argument("-q", "--quiet", action="store_true", help="results alone")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    declare(parser)
    return parser


def _with_file(given: dict[str, Any], verbosity: int) -> dict[str, Any]:
    """What was given and what the file has; settings without effect are told, unless results alone are wanted."""
    path = given.get("config_file")
    settings = given if path is None else _merged(given, read_config_file(path))
    if verbosity >= 0:
        for sentence in without_effect(settings):
            print(sentence, file=sys.stderr)
    return settings


def _merged(given: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Flags before the file; models named by both keep the file's settings."""
    named = given.get("profile_models")
    if named is not None and isinstance(content.get("profile_models"), dict):
        own = content["profile_models"]
        given = {**given, "profile_models": {name: own.get(name) or {} for name in str(named).split(",")}}
    return {**content, **given}


def _reporting(program: str, act: Callable[[], int]) -> int:
    """Says on stderr what went wrong; the exit code."""
    try:
        return act()
    except ClientError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
