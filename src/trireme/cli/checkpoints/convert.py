"""`trireme convert`: checkpoints of Hugging Face into FasterTransformer's layout, and back."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.cli.endings import cleaning_up_behind_signals

SUMMARY = "turn a checkpoint into FasterTransformer's layout, or back"


def main(arguments: Sequence[str]) -> int:
    """Runs the converter; the exit code of the process."""
    from trireme.tools.convert.run import run  # the other commands need none of it

    with cleaning_up_behind_signals():
        return run(arguments)
