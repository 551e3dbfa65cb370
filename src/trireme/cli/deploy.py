"""`trireme deploy`: from a model of Hugging Face, on the hub or in a folder, to a server that answers."""

from __future__ import annotations

from collections.abc import Sequence

SUMMARY = "serve a Hugging Face model: fetch it, write its folder, start"


def main(arguments: Sequence[str]) -> int:
    """Deploys, and serves until Ctrl+C; the exit code of the process."""
    # Imported late: the other commands need none of it.
    from trireme.cli.deployment import run_deploy

    return run_deploy(arguments)
