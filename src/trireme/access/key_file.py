"""The file of `--api-keys`: read and checked as a whole, so that a mistake in it changes nothing."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trireme.access.api_key import ANONYMOUS, QUOTA_NAMES, ApiKey, Quota
from trireme.access.groups import EVERY_GROUP, GROUPS, expand
from trireme.access.key_secret import parse_hash
from trireme.core.errors import InvalidArgumentError

MAX_FILE_BYTES: Final = 8 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_FIELDS: Final = frozenset(("hashes", "groups", *QUOTA_NAMES))


class KeyFileError(InvalidArgumentError):
    """A key file that cannot be used: what is wrong with it, where, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"the key file '{path}' cannot be used: {problem}")


def read_key_file(path: Path) -> list[ApiKey]:
    """The keys in it, and what clients without a key may do where it says so; raises KeyFileError."""
    return parse_keys(path, read_text(path))


def read_text(path: Path) -> str:
    """What is in the file, if nobody else may read or change it; raises KeyFileError."""
    try:
        with open(path, "rb", opener=_open) as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(path, f"{error.strerror}; 'trireme keys new' makes one") from None
    if len(content) > MAX_FILE_BYTES:
        raise KeyFileError(path, f"it is larger than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise KeyFileError(path, f"it is not UTF-8 at byte {error.start}") from None


def parse_keys(path: Path, text: str) -> list[ApiKey]:
    """The same for a text that was read from there."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the second for tables in tables in tables
        raise KeyFileError(path, _syntax_problem(str(error))) from None
    unknown = sorted(document.keys() - {"keys", ANONYMOUS})
    if unknown:
        raise KeyFileError(path, f"'{unknown[0]}' is not known; there are [keys.NAME] and [{ANONYMOUS}]")
    tables = document.get("keys", {})
    if not isinstance(tables, Mapping):
        raise KeyFileError(path, "'keys' must be tables: [keys.NAME]")
    keys = [_read_key(path, name, table) for name, table in tables.items()]
    if ANONYMOUS in document:
        keys.append(_read_anonymous(path, document[ANONYMOUS]))
    _check_distinct(path, keys)
    return keys


def check_name(name: str) -> str | None:
    """What is wrong with the name of a key; None for a good one."""
    if name == ANONYMOUS:
        return f"'{ANONYMOUS}' is the name of clients without a key"
    if _NAME.fullmatch(name) is None:
        return f"the name '{name}' must be 1 to 64 letters, digits or . _ @ -, the first a letter or digit"
    return None


def check_groups(names: object) -> str | None:
    """What is wrong with a list of groups."""
    if not isinstance(names, (list, tuple)) or not names:
        return 'groups must be a list of names, such as ["inference", "health"]'
    unknown = [name for name in names if name not in GROUPS and name != EVERY_GROUP]
    if unknown:
        return f"there is no group '{unknown[0]}'; there are {', '.join(GROUPS)}, and {EVERY_GROUP}"
    return None


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would be waited for, by a thread that nothing ends


def _check_mode(path: Path, mode: int) -> None:
    permissions = f"(mode {stat.S_IMODE(mode):04o}); run: chmod 600 '{path}'"
    if not stat.S_ISREG(mode):
        raise KeyFileError(path, "it is not a file")
    if mode & stat.S_IROTH:
        raise KeyFileError(path, f"everybody on this machine can read it {permissions}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KeyFileError(path, f"others than its owner can write it {permissions}")


def _syntax_problem(message: str) -> str:
    twice = re.match(r"Cannot declare \('keys', '([^']*)'\) twice \((.*)\)", message)
    if twice is not None:
        return f"there are two keys named '{twice[1]}' ({twice[2]}); a name has one table, with all its hashes"
    return f"it is not TOML: {message}"


def _read_key(path: Path, name: str, table: Any) -> ApiKey:
    problem = check_name(name) or _table_problem(table)
    hashes = table.get("hashes", []) if problem is None else []
    if problem is None and (not isinstance(hashes, list) or not hashes):
        problem = "hashes must be a list of hashes as 'trireme keys new' writes them"
    digests = [parse_hash(text) for text in hashes]
    if problem is None and None in digests:
        problem = f"hash {digests.index(None) + 1} is not 'sha256:' and 64 hexadecimal digits"
    if problem is not None:
        raise KeyFileError(path, f"in [keys.{name}], {problem}")
    return ApiKey(name, tuple(filter(None, digests)), expand(tuple(table["groups"])), _quota(table))


def _read_anonymous(path: Path, table: Any) -> ApiKey:
    problem = _table_problem(table)
    if problem is None and "hashes" in table:
        problem = "hashes make no sense: it is for clients without a key"
    if problem is not None:
        raise KeyFileError(path, f"in [{ANONYMOUS}], {problem}")
    return ApiKey(ANONYMOUS, (), expand(tuple(table["groups"])), _quota(table))


def _table_problem(table: Any) -> str | None:
    if not isinstance(table, Mapping):
        return "there must be a table"
    unknown = sorted(table.keys() - _FIELDS)
    if unknown:
        return f"'{unknown[0]}' is not known; there are hashes, groups, {', '.join(QUOTA_NAMES)}"
    if "groups" not in table:
        return f'groups are missing: a list of {", ".join(GROUPS)}, or ["{EVERY_GROUP}"]'
    problem = check_groups(table["groups"])
    for name in QUOTA_NAMES:
        problem = problem or check_quota(name, table.get(name))
    return problem


def check_quota(name: str, value: object) -> str | None:
    """What is wrong with a limit."""
    if value is None:
        return None
    kinds = (int, float) if name == "requests_per_second" else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 2**63:
        return f"{name} must be a number above 0, without it there is no limit"
    return None


def _quota(table: Mapping[str, Any]) -> Quota:
    return Quota(**{name: table.get(name) for name in QUOTA_NAMES})


def _check_distinct(path: Path, keys: list[ApiKey]) -> None:
    owners: dict[bytes, str] = {}
    for key in keys:
        for digest in key.hashes:
            if digest in owners:
                raise KeyFileError(path, f"'{owners[digest]}' and '{key.name}' have the same hash")
            owners[digest] = key.name
