"""`trireme analyze`, also installed as `model-analyzer`: finds the configuration that serves a model best."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trireme.cli.endings import exit_code_of

SUMMARY = "find the configuration that serves a model best, by measuring it"


def main(arguments: Sequence[str]) -> int:
    """Measures; the exit code of the process."""
    from trireme.tools.analyze.command import run_command  # the other commands need none of it

    return run_command("trireme analyze", arguments)


def model_analyzer() -> int:
    """The command of that name."""
    from trireme.tools.analyze.command import run_subcommand

    return exit_code_of(lambda: run_subcommand("model-analyzer", sys.argv[1:]))
