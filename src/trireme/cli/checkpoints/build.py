"""`trireme build`: engine folders from models, quantized where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.cli.endings import cleaning_up_behind_signals

SUMMARY = "build an engine folder from a model, with weights of few bits"


def main(arguments: Sequence[str]) -> int:
    """Runs the builder; the exit code of the process."""
    from trireme.tools.build.run import run  # the other commands need none of it

    with cleaning_up_behind_signals():
        return run(arguments)
