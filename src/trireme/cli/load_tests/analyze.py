"""`trireme analyze`, also installed as `model-analyzer`: finds the configuration that serves a model best."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

SUMMARY = "find the configuration that serves a model best, by measuring it"


def main(arguments: Sequence[str]) -> int:
    """Measures; the exit code of the process."""
    from trireme.tools.analyze.command import run_command  # the other commands need none of it

    return run_command("trireme analyze", arguments)


def model_analyzer() -> int:
    """The command of that name."""
    from trireme.tools.analyze.command import run_subcommand

    try:
        code = run_subcommand("model-analyzer", sys.argv[1:])
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
