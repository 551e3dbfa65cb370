"""`trireme package`: packs a model repository for a cloud's model catalog, and checks that it loads from there."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from trireme.cli.endings import cleaning_up_behind_signals, parsed
from trireme.cli.serving.repository_folder import mistaken_folder
from trireme.config.model_config import ModelConfig
from trireme.config.options.flag_parser import FlagParser
from trireme.config.options.server import ServerOptions
from trireme.core.load_failure import LoadFailure
from trireme.tools.package.archive import PackageError, unpack_archive, write_archive

SUMMARY = "pack a model repository into a zip file that loads elsewhere"


_STOPPING_S = 60
"""For how long a server that is to end may do so by itself."""


class _LoadError(Exception):
    """Models that do not load from the package."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__(failures)
        self.failures = failures


def main(arguments: Sequence[str]) -> int:
    """Packs and checks; the exit code of the process."""
    given = parsed(_parser(), arguments)
    repository, target = Path(given.repository), Path(given.output)
    try:
        _check_folder(repository)
        with cleaning_up_behind_signals():
            count = write_archive(repository, target, None if given.no_check else _check)
    except PackageError as error:
        print(f"trireme package: {error}", file=sys.stderr)
        return 1
    except _LoadError as error:
        for name, reason in error.failures.items():
            print(f"trireme package: {name} does not load from the package: {reason}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"trireme package: {error.filename or target}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"Wrote {target}: {count} files, {target.stat().st_size / 2**20:.1f} MiB")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(prog="trireme package", description="Packs a model repository into a zip file.")
    parser.add_argument("repository", metavar="REPOSITORY", help="the folder with the models' folders")
    parser.add_argument("-o", "--output", default="model_artifact.zip", metavar="FILE", help="the zip file to write")
    parser.add_argument("--no-check", action="store_true", help="do not load the models from the package")
    return parser


def _check_folder(repository: Path) -> None:
    """Raises PackageError where it is one model, in place of the folder with the models' folders."""
    if (mistaken := mistaken_folder(repository)) is not None:
        raise PackageError(
            f"{mistaken.text}. All models of that are packed by\n  trireme package {mistaken.repository}\n"
            "and one alone from a folder that has no other"
        )


def _check(archive: Path) -> None:
    """Loads every model from an unpacked copy, in a server without ports; raises what does not. The server is a process
    of its own: whatever ends it, the files are removed here."""
    # Beside the package, where the room is: the usual place for scratch folders is often small, or memory.
    with tempfile.TemporaryDirectory(prefix=".trireme-package-", dir=archive.absolute().parent) as folder:
        repository, result = unpack_archive(archive, Path(folder)), Path(folder, ".result.json")
        command = [sys.executable, "-P", "-c", _SERVER, str(repository), str(result)]
        with subprocess.Popen(command) as server:
            try:
                server.wait()
            except BaseException:
                server.terminate()
                try:
                    server.wait(_STOPPING_S)
                except subprocess.TimeoutExpired:
                    server.kill()
                raise
        if not result.is_file():
            raise PackageError("the check was ended before all models were loaded; nothing is written")
        if failures := json.loads(result.read_text()):
            raise _LoadError(failures)


_SERVER = "import sys; from trireme.cli.package import load_all; load_all(*sys.argv[1:])"


def load_all(repository: str, result: str) -> None:
    """Run by the process of the check: writes why models could not be loaded, by name, once all were tried."""
    from trireme.app.launch import run  # reads the server from disk

    failures: dict[str, str] = {}

    def note(failed: Sequence[LoadFailure]) -> None:
        failures.update({failure.name: failure.text.strip() for failure in failed})

    def stop(configs: Sequence[ModelConfig]) -> None:
        if not configs and not failures:
            failures["the repository"] = "it has no model"
        Path(result).write_text(json.dumps(failures))
        os.kill(os.getpid(), signal.SIGTERM)

    options = ServerOptions(
        model_repository=(repository,),
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
        exit_on_error=False,
        log_info=False,
    )
    with redirect_stdout(StringIO()):  # which tells of the signal that it gives itself
        code = run(options, on_ready=stop, on_failures=note)
    if code != 0 and not failures:
        failures["the repository"] = "the server could not be started from it"
        Path(result).write_text(json.dumps(failures))
