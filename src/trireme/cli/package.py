"""`trireme package`: packs a model repository for a cloud's model catalog, and checks that it loads from there."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trireme.cli.endings import parsed
from trireme.config.model_config import ModelConfig
from trireme.config.options.flag_parser import FlagParser
from trireme.config.options.server import ServerOptions
from trireme.core.load_failure import LoadFailure
from trireme.tools.package.archive import PackageError, unpack_archive, write_archive

SUMMARY = "pack a model repository into a zip file that loads elsewhere"


def main(arguments: Sequence[str]) -> int:
    """Packs and checks; the exit code of the process."""
    given = parsed(_parser(), arguments)
    repository, target = Path(given.repository), Path(given.output)
    try:
        count = write_archive(repository, target)
        failures = {} if given.no_check else _load(target)
    except PackageError as error:
        print(f"trireme package: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"trireme package: {error.filename or target}: {error.strerror}", file=sys.stderr)
        return 1
    if failures:
        target.unlink()
        for name, reason in failures.items():
            print(f"trireme package: {name} does not load from the package: {reason}", file=sys.stderr)
        return 1
    print(f"Wrote {target}: {count} files, {target.stat().st_size / 2**20:.1f} MiB")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(prog="trireme package", description="Packs a model repository into a zip file.")
    parser.add_argument("repository", metavar="REPOSITORY", help="the folder with the models' folders")
    parser.add_argument("-o", "--output", default="model_artifact.zip", metavar="FILE", help="the zip file to write")
    parser.add_argument("--no-check", action="store_true", help="do not load the models from the package")
    return parser


def _load(archive: Path) -> Mapping[str, str]:
    """Loads every model from an unpacked copy, in a server without ports; why some could not be loaded, by name."""
    from trireme.app.launch import run  # reads the server from disk

    failures: dict[str, str] = {}

    def note(failed: Sequence[LoadFailure]) -> None:
        failures.update({failure.name: failure.text.strip() for failure in failed})

    def stop(configs: Sequence[ModelConfig]) -> None:
        if not configs and not failures:
            failures["the repository"] = "it has no model"
        os.kill(os.getpid(), signal.SIGTERM)

    with tempfile.TemporaryDirectory(prefix="trireme-package-") as folder:
        options = ServerOptions(
            model_repository=(str(unpack_archive(archive, Path(folder))),),
            allow_http=False,
            allow_grpc=False,
            allow_metrics=False,
            exit_on_error=False,
            log_info=False,
        )
        if run(options, on_ready=stop, on_failures=note) != 0 and not failures:
            failures["the repository"] = "the server could not be started from it"
    return failures
