"""`trireme convert`: checkpoints of Hugging Face into FasterTransformer's layout, and back."""

from __future__ import annotations

from collections.abc import Sequence

SUMMARY = "turn a checkpoint into FasterTransformer's layout, or back"


def main(arguments: Sequence[str]) -> int:
    """Runs the converter; the exit code of the process."""
    from trireme.tools.convert.run import run  # the other commands need none of it

    return run(arguments)
