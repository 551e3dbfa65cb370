"""The `tritonserver` command: Triton's flags, usage and exit codes."""

from __future__ import annotations

from trireme.app.early_interrupt import ending_at_once

with ending_at_once():
    import os
    import sys
    from collections.abc import Sequence
    from contextlib import ExitStack

    from trireme.cli import mpi, version
    from trireme.cli.command_line import ServerCommand, read_options
    from trireme.cli.endings import exit_code_of
    from trireme.config.options.server import ServerOptions

COMMAND = ServerCommand("tritonserver", "[options]", help_exit_code=1, defaults=ServerOptions())


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal comes; the exit code of the process."""
    return exit_code_of(lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(words: Sequence[str]) -> int:
    if list(words) == ["--version"]:
        return version.main(())
    options = read_options(COMMAND, words, os.environ)
    with ExitStack() as links:
        code = mpi.take_part(os.environ, links)
        if code is not None:
            return code
        # Imported late: a wrong flag is answered before the server is read from disk.
        with ending_at_once():
            from trireme.app.launch import run

        return run(options)
