"""The files of the page: read once from the package, with a tag by which browsers know that they have them.

They are readable as they are in the package. What is sent is compressed, once, when a file is first asked for.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file."""

    content_type: str
    data: bytes
    tag: str
    """Differs where the content does."""

    @property
    def compressed(self) -> bytes:
        """By gzip; made at the first call and kept."""
        return _compressed(self.data)


@cache
def static_files() -> dict[str, StaticFile]:
    """By path below their folder. There is no other way to a file than this table."""
    return dict(_files_in(resources.files("trireme.console").joinpath("static"), ""))


def _files_in(folder: Traversable, path: str) -> Iterator[tuple[str, StaticFile]]:
    for entry in folder.iterdir():
        suffix = entry.name.rpartition(".")[2]
        if entry.is_dir():
            yield from _files_in(entry, f"{path}{entry.name}/")
        elif suffix in _TYPES:
            data = entry.read_bytes()
            tag = hashlib.sha256(data).hexdigest()[:16]
            yield f"{path}{entry.name}", StaticFile(_TYPES[suffix], data, tag)


@cache
def _compressed(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)
