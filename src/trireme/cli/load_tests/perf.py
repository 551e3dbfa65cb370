"""`trireme perf`, also installed as `perf_analyzer`: loads a server and reports throughput and latency."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trireme.cli.endings import exit_code_of

SUMMARY = "load a server and measure it, with the flags and the output of perf_analyzer"


def main(arguments: Sequence[str]) -> int:
    """Measures; the exit code of the process."""
    return _run("trireme perf", arguments)


def perf_analyzer() -> int:
    """The command of that name."""
    return _run("perf_analyzer", sys.argv[1:])


def genai_perf() -> int:
    """The command of that name."""
    return _run("genai-perf", sys.argv[1:])


def _run(program: str, arguments: Sequence[str]) -> int:
    from trireme.tools.perf.command import run_command, run_llm_command  # the other commands need none of it

    run = run_llm_command if program == "genai-perf" else run_command
    return exit_code_of(lambda: run(program, arguments))
