"""The command as a whole: words in, exit code out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from trireme import __version__
from trireme.core.exit_codes import INTERRUPTED
from trireme.observe.terminal.plain_text import shown_lines
from trireme.tools.perf.command_line.reading import make_parser, options_of
from trireme.tools.perf.errors import PerfError, UsageError
from trireme.tools.perf.llm.run import run_llm
from trireme.tools.perf.run import run

_TEMPLATE = "all settings are flags of 'profile', and there is no file of them"
_OTHER_COMMANDS = {
    "analyze": "'trireme analyze MODEL' searches settings and loads, and 'profile' measures one load",
    "config": _TEMPLATE,
    "template": _TEMPLATE,
    "create-template": _TEMPLATE,
    "process-export-files": "each run writes its own tables, and nothing joins those of several",
}
"""Of the original, beside `profile`: what there is in their place."""


def run_command(program: str, arguments: Sequence[str]) -> int:
    """Runs one command line of perf_analyzer, or behind the word `llm` one of genai-perf."""
    if list(arguments[:1]) == ["llm"]:
        return run_llm_command(f"{program} llm", arguments[1:])
    return _reporting(program, lambda: _run(program, arguments))


def run_llm_command(program: str, arguments: Sequence[str]) -> int:
    """Runs one command line of genai-perf, with or without its word `profile`."""
    words = arguments[1:] if list(arguments[:1]) == ["profile"] else arguments
    return _reporting(program, lambda: _run_llm(program, words))


def _run_llm(program: str, words: Sequence[str]) -> int:
    if words and words[0] in _OTHER_COMMANDS:
        raise UsageError(f"'{words[0]}' is not supported here: {_OTHER_COMMANDS[words[0]]}.")
    return run_llm(program, words)


def _run(program: str, arguments: Sequence[str]) -> int:
    parser = make_parser(program)
    given = parser.parse_args(list(arguments))
    if given.version:
        print(f"Perf Analyzer Version {__version__} (Trireme)")
        return 0
    return run(options_of(given))


def _reporting(program: str, act: Callable[[], int]) -> int:
    """Says on stderr what went wrong; the exit code."""
    try:
        return act()
    except UsageError as error:
        print(f"Error: {error}\n'{program} --help' lists every option.", file=sys.stderr)
        return error.exit_code
    except PerfError as error:
        print(shown_lines(str(error)), file=sys.stderr)  # it may be in the words of the server
        return error.exit_code
    except KeyboardInterrupt:  # before anything was measured
        return INTERRUPTED
