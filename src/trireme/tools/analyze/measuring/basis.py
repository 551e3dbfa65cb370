"""What measurements of a model rest on beside its configuration: server, load and files; others are not its."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trireme.tools.analyze.checkpoint import fingerprint
from trireme.tools.analyze.options import AnalyzeOptions, ServerPlace

Basis = dict[str, str]
"""By what it is of, a fingerprint: no key of a header, a flag or the environment can be read from it."""
_WRITTEN_BY_PYTHON = "__pycache__"


def basis_of(options: AnalyzeOptions, model: str) -> Basis:
    """The server, the load, and the files of the model's versions where the repository is at hand."""
    flags = next((one.perf_flags for one in options.models if one.name == model), ())
    return {
        "server": fingerprint(_server(options.place)),
        "load": fingerprint([*flags, *_stamps_of_files(flags)]),
        "files": fingerprint(_stamps_of_versions(options.repository, model)),
    }


def _server(place: ServerPlace) -> list[object]:
    """Ports of a server of our own change from run to run, and a key is no other server."""
    if place.launch_mode == "local":
        return ["local", place.protocol, place.program, dict(place.flags), dict(place.environment)]
    return ["remote", place.protocol, place.http_url, place.grpc_url]


def _stamps_of_files(flags: Sequence[str]) -> list[object]:
    """Files and folders that flags name, such as that of --input-data."""
    named = [Path(flag.rpartition("=")[2]) for flag in flags if flag.rpartition("=")[2]]
    return [_stamp(path) for given in named for path in _files(given)]


def _stamps_of_versions(repository: str | None, model: str) -> list[object]:
    folder = Path(repository or "", model)
    if repository is None or not folder.is_dir():
        return []
    versions = sorted(path for path in folder.iterdir() if path.name.isdigit())
    return [_stamp(path) for version in versions for path in _files(version)]


def _files(given: Path) -> Iterator[Path]:
    try:
        if given.is_file():
            yield given
        elif given.is_dir():
            yield from (
                path for path in sorted(given.rglob("*")) if path.is_file() and path.parent.name != _WRITTEN_BY_PYTHON
            )
    except OSError:  # a word that is longer than a name may be
        return


def _stamp(path: Path) -> list[object]:
    try:
        found = path.stat()
    except OSError:  # gone meanwhile
        return [str(path)]
    return [str(path), found.st_size, found.st_mtime_ns]
