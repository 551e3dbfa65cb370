"""Models that failed to load, for the person who is to mend them: what is wrong, in which line, and that line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trireme.config.model_code import code_problems
from trireme.core.errors import ErrorKind
from trireme.core.load_failure import LoadFailure
from trireme.machine.regular_files import read_regular
from trireme.observe.terminal.appearance import painted

_KIND = re.compile(rf"^(?:{'|'.join(kind.label for kind in ErrorKind)}): ")
_SYNTAX = re.compile(r"^(?P<kind>\w+): (?P<message>.*) \((?P<file>[^()]+\.py), line (?P<line>\d+)\)$")
_EXCEPTION = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<message>.*)$")
_FRAME = re.compile(r"^\s+(?P<path>\S.*)\((?P<line>\d+)\): \S+$")
_CONFIG = re.compile(r"^failed to read text proto from (?P<path>.+?): (?P<line>\d+):\d+: (?P<message>.*)$")
_GPU = re.compile(r"^[^#\n]*\bKIND_GPU\b", re.MULTILINE)
_MOST_BYTES = 16 << 20  # what has more, no person wrote


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of a file of the model."""

    path: Path
    line: int

    def described(self) -> str:
        return f"{self.path.name} line {self.line}"

    def shown(self) -> list[str]:
        """The path as one can open it, and the line itself."""
        try:
            lines = read_regular(self.path, _MOST_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        source = lines[self.line - 1].strip() if 0 < self.line <= len(lines) else ""
        return [f"{_shown_path(self.path)}:{self.line}", *([f"    {source}"] if source else [])]


def _shown_path(path: Path) -> str:
    try:
        return os.path.relpath(path)
    except OSError:  # the current folder has been removed
        return str(path)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is known about one failure."""

    headline: str
    place: _Place | None = None
    more: tuple[str, ...] = ()
    """Lines below the place: frames, the rest of the text, advice."""


def print_failures(failures: Sequence[LoadFailure]) -> None:
    """The summary on standard error; nothing where there is none, or where nobody reads it any more."""
    if failures:
        text = "\n".join(failure_lines(failures))
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)


def failure_lines(failures: Sequence[LoadFailure]) -> list[str]:
    """The summary: how many, and for each what, where and the line itself."""
    lines = [painted(f"{len(failures)} failed:", "red", sys.stderr)]
    for failure in failures:
        found = _finding(failure)
        lines.append(f"  {painted(failure.name, 'bold', sys.stderr)}: {found.headline}")
        below = [*(found.place.shown() if found.place else ()), *found.more]
        lines += [f"      {line}" for line in below]
    return [*lines, ""]


def _finding(failure: LoadFailure) -> _Finding:
    first, *rest = _KIND.sub("", failure.text.strip()).splitlines() or [""]
    plain = _Finding(first, more=tuple(line for line in rest if line.strip()))
    try:
        found = _in_config(failure, first, rest) or _in_syntax(failure, first) or _in_frames(failure, first, rest)
        return found or replace(plain, more=(*plain.more, *_problems_of_code(failure)))
    except OSError:  # a folder that may not be looked into, or the current one has been removed
        return plain


def _in_config(failure: LoadFailure, first: str, rest: Sequence[str]) -> _Finding | None:
    """A configuration that cannot be read, or that wants a GPU where there is none."""
    match = _CONFIG.match(first)
    if match is not None:
        place = _Place(Path(match["path"]), int(match["line"]))
        return _Finding(f"{place.described()}: {match['message']}", place, tuple(rest))
    if "KIND_GPU but no GPUs are available" not in first:
        return None
    gpu_line = _line_with_gpu(failure.folder)
    advice = "change KIND_GPU to KIND_CPU there, or to KIND_AUTO, which takes a GPU where there is one"
    if gpu_line is None:
        return _Finding(first, more=("write instance_group [ { kind: KIND_CPU } ] into its config.pbtxt",))
    return _Finding(f"{gpu_line.described()} wants a GPU, and this machine has none", gpu_line, (advice,))


def _line_with_gpu(folder: Path | None) -> _Place | None:
    if folder is None:
        return None
    path = folder / "config.pbtxt"
    try:
        text = read_regular(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    match = _GPU.search(text)
    return None if match is None else _Place(path, text.count("\n", 0, match.end()) + 1)


def _in_syntax(failure: LoadFailure, first: str) -> _Finding | None:
    """An error of Python's parser, which names the file without its folder."""
    match = _SYNTAX.match(first)
    if match is None or failure.folder is None:
        return None
    line = int(match["line"])
    files = sorted([*failure.folder.glob(match["file"]), *failure.folder.glob(f"*/{match['file']}")])
    broken = [path for path in files if _breaks_at(path, line)] or files
    if not broken:
        return None
    place = _Place(broken[-1], line)
    return _Finding(f"{match['kind']} in {place.described()}: {match['message']}", place)


def _breaks_at(path: Path, line: int) -> bool:
    try:
        compile(read_regular(path, _MOST_BYTES), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        return error.lineno == line
    except (OSError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return False
    return False


def _in_frames(failure: LoadFailure, first: str, rest: Sequence[str]) -> _Finding | None:
    """An exception with the places it came through, the innermost first."""
    frames = [match for line in rest if (match := _FRAME.match(line))]
    own = [frame for frame in frames if _is_inside(frame["path"], failure.folder)]
    match = _EXCEPTION.match(first)
    if not own or match is None:
        return None
    place = _Place(Path(own[0]["path"]), int(own[0]["line"]))
    found = _Finding(f"{match['kind']} in {place.described()}: {match['message']}", place)
    lines = [line for line in rest if line.strip()]
    start = next((index for index, line in enumerate(lines) if line.strip() == "At:"), 0)
    notes, others = lines[:start], [line for line in lines[start:] if line.strip() != "At:"]
    return replace(found, more=tuple(notes) if len(frames) == 1 else (*notes, "came through:", *others))


def _is_inside(path: str, folder: Path | None) -> bool:
    return folder is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _problems_of_code(failure: LoadFailure) -> list[str]:
    """What can be seen in its model.py without running it."""
    files = sorted(failure.folder.glob("*/model.py")) if failure.folder is not None else []
    return [problem.replace(str(path), _shown_path(path)) for path in files for problem in code_problems(path)]
