"""Changes to the key file: a name added, given another secret, or removed; the rest of the file stays as it is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from trireme.access.api_key import QUOTA_NAMES, ApiKey
from trireme.access.groups import EVERY_GROUP, GROUPS
from trireme.access.key_file import KeyFileError, parse_keys, read_text
from trireme.access.key_secret import hash_text

_HEADER: Final = """# Keys of a Trireme server. Only hashes are kept here: a key is shown once, when it is made.
# A name has its hashes, the groups of API it may use, and optionally requests_per_second, bytes_per_second and
# requests_in_flight. A table [anonymous] says what clients without a key may use.
"""
_KEPT_HASHES: Final = 2
_TABLE: Final = re.compile(r"^[ \t]*\[")


def add_key(path: Path, key: ApiKey) -> None:
    """Adds a name, to a new file where there is none; raises KeyFileError where the name is taken."""
    text = read_text(path) if path.exists() else _HEADER
    if any(other.name == key.name for other in parse_keys(path, text)):
        raise KeyFileError(
            path, f"it has a key named '{key.name}' already; 'trireme keys rotate' gives it another secret"
        )
    _write(path, text.rstrip("\n") + "\n\n" + _table(key))


def rotate_key(path: Path, name: str, digest: bytes, ends_others: bool) -> None:
    """Adds a secret to a name and keeps the newest of those it has, or none; raises KeyFileError."""
    text = read_text(path)
    key = _find(path, text, name)
    kept = () if ends_others else key.hashes[-(_KEPT_HASHES - 1) :]
    changed = replace(key, hashes=(*kept, digest))
    before, after = _around(path, text, name)
    _write(path, before + _table(changed) + ("\n" if after else "") + after)


def remove_key(path: Path, name: str) -> None:
    """Removes a name and its secrets; raises KeyFileError where it is not there."""
    text = read_text(path)
    _find(path, text, name)
    before, after = _around(path, text, name)
    changed = before.rstrip("\n") + "\n" + ("\n" + after if after else "")
    names = [key.name for key in parse_keys(path, text) if key.name != name]
    if [key.name for key in parse_keys(path, changed)] != names:
        raise KeyFileError(path, f"the table of '{name}' is written in a way that only a person can take out")
    _write(path, changed)


def _find(path: Path, text: str, name: str) -> ApiKey:
    found = next((key for key in parse_keys(path, text) if key.name == name and key.hashes), None)
    if found is None:
        raise KeyFileError(path, f"it has no key named '{name}'")
    return found


def _around(path: Path, text: str, name: str) -> tuple[str, str]:
    """What is in front of and behind the table of a name."""
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"""^[ \t]*\[[ \t]*keys[ \t]*\.[ \t]*(["']?){re.escape(name)}\1[ \t]*\]""")
    first = next((index for index, line in enumerate(lines) if header.match(line)), None)
    if first is None:
        raise KeyFileError(path, f"the table of '{name}' is not written as [keys.{name}]; change it by hand")
    last = next((index for index in range(first + 1, len(lines)) if _TABLE.match(lines[index])), len(lines))
    return "".join(lines[:first]), "".join(lines[last:])


def _table(key: ApiKey) -> str:
    name = key.name if re.fullmatch(r"[A-Za-z0-9_-]+", key.name) else f'"{key.name}"'
    groups = [EVERY_GROUP] if key.groups == frozenset(GROUPS) else [group for group in GROUPS if group in key.groups]
    lines = [
        f"[keys.{name}]",
        f"hashes = {_strings([hash_text(digest) for digest in key.hashes])}",
        f"groups = {_strings(groups)}",
    ]
    for limit in QUOTA_NAMES:
        value = getattr(key.quota, limit)
        if value is not None:
            lines.append(f"{limit} = {value}")
    return "\n".join(lines) + "\n"


def _strings(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def _write(path: Path, text: str) -> None:
    """Puts the text in the file's place at once, readable for its owner alone, or as it was before."""
    parse_keys(path, text)
    place = path.resolve()
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        mode = place.stat().st_mode & 0o777 if place.exists() else 0o600
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(place)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise KeyFileError(path, f"it cannot be written: {error.strerror}") from None
