"""The `tritonserver` command: Triton's flags, usage and exit codes."""

from __future__ import annotations

from trireme.app.early_interrupt import ending_at_once

with ending_at_once():
    import os
    import sys
    from collections.abc import Sequence
    from contextlib import ExitStack
    from dataclasses import replace
    from pathlib import Path

    from trireme.app.listening import port_problem
    from trireme.cli import mpi, version
    from trireme.cli.command_line import ServerCommand, read_options
    from trireme.cli.endings import exit_code_of
    from trireme.cli.serving.repository_folder import mistaken_folder
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
        if (problem := port_problem(options)) is not None:  # before models take their time
            print(f"error: {problem}", file=sys.stderr)
            return 1
        # Imported late: a wrong flag is answered before the server is read from disk.
        with ending_at_once():
            from trireme.app.launch import run

        return run(_with_notices(options))


def _with_notices(options: ServerOptions) -> ServerOptions:
    """With a word about each repository that is a model: Triton serves its versions as models, and so does this."""
    notices = [notice for path in options.model_repository if (notice := _mistake_in(Path(path))) is not None]
    return replace(options, notices=(*options.notices, *notices))


def _mistake_in(path: Path) -> str | None:
    try:
        mistaken = mistaken_folder(path)
    except OSError:  # the load itself will tell
        return None
    if mistaken is None:
        return None
    meant = f"say --model-repository={mistaken.repository}"
    return f"{mistaken.text}, so that the folders in it are taken for models: {meant}"
