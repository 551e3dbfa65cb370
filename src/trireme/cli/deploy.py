"""`trireme deploy`: from a model of Hugging Face, on the hub or in a folder, to a server that answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trireme.core.exit_codes import INTERRUPTED

SUMMARY = "serve a Hugging Face model: fetch it, write its folder, start"


def main(arguments: Sequence[str]) -> int:
    """Deploys, and serves until Ctrl+C; the exit code of the process."""
    try:
        # Imported late: the other commands need none of it.
        from trireme.cli.deployment.steps import run_deploy

        return run_deploy(arguments)
    except KeyboardInterrupt:  # it was still being read from disk
        print("\nStopped.", file=sys.stderr)
        return INTERRUPTED
