"""Writes the best configuration into the model's folder, measures it there, and takes it back if it does not hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trireme.tools.analyze.configuration.variant_text import edited, variant_text
from trireme.tools.analyze.errors import PUT_BACK, ClientError, InputError, Interrupted
from trireme.tools.analyze.options import AnalyzeOptions
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.server.control import ModelControl
from trireme.tools.analyze.server.guardian import Guardian
from trireme.tools.analyze.session import Session
from trireme.tools.analyze.trial import Result

_KEPT_SHARE = 0.9
"""Of the promised throughput that the new configuration must reach."""
_MEASUREMENTS = 3
"""One that holds is enough: what else the machine does can only make it slower."""


@dataclass(frozen=True, slots=True)
class _File:
    """A configuration file and what it held; None where there was none."""

    path: Path
    model: str
    before: bytes | None

    def text(self) -> str:
        """Raises InputError."""
        try:
            return (self.before or b"").decode()
        except UnicodeDecodeError as error:
            raise InputError(f"'{self.path}' is no UTF-8 text: {error}") from None

    def put_back(self) -> None:
        if self.before is None:
            self.path.unlink(missing_ok=True)
        else:
            _write(self.path, self.before)


def apply_best(
    options: AnalyzeOptions,
    subjects: Sequence[Subject],
    session: Session,
    control: ModelControl,
    tell: Callable[[str], None],
) -> int:
    """The exit code; raises InputError where a file cannot be written."""
    code = 0
    for subject in subjects:
        best = subject.best
        if best is None or all(setting.is_default for _, setting in best.settings):
            tell(f"{subject.title}: its own configuration is the best, nothing is written")
            continue
        files = _files(options.repository or "", subject)
        with Guardian(partial(_undo, files, control)):
            code = max(code, _try(subject, files, session, control, tell))
    return code


def _try(
    subject: Subject, files: list[_File], session: Session, control: ModelControl, tell: Callable[[str], None]
) -> int:
    paths = ", ".join(str(file.path) for file in files)
    try:
        is_kept = _is_better_as_written(subject, files, session)
    except Interrupted:
        _undo(files, control)
        tell(f"{subject.title}: interrupted; {paths} is as before")
        raise
    except ClientError as error:
        is_kept = False
        tell(f"{subject.title}: the new configuration could not be measured: {error}")
    if is_kept:
        tell(f"{subject.title}: wrote {paths}; measured again, it holds")
        return 0
    _undo(files, control)
    tell(f"{subject.title}: the new configuration did not hold; {paths} is as before")
    return PUT_BACK


def _is_better_as_written(subject: Subject, files: Sequence[_File], session: Session) -> bool:
    """Writes the files, has the server load them, and measures."""
    best = subject.best
    assert best is not None
    for file in files:
        setting = dict(best.settings)[file.model]
        config = subject.config_of(file.model, setting)
        text = edited(file.text(), config, setting, str(file.path)) if file.before is not None else variant_text(config)
        _write(file.path, text.encode())
        session.reload(file.model)
    return any(_holds(subject, best.best, session.measure_as_it_is(best.best.trial)) for _ in range(_MEASUREMENTS))


def _holds(subject: Subject, promised: Result, result: Result) -> bool:
    if not subject.ranking.is_satisfying(result):
        return False
    pairs = zip(promised.measured, result.measured, strict=True)
    return all(
        after.metrics["perf_throughput"] >= _KEPT_SHARE * before.metrics["perf_throughput"] for before, after in pairs
    )


def _files(repository: str, subject: Subject) -> list[_File]:
    best = subject.best
    assert best is not None
    found = []
    for model, setting in best.settings:
        if setting.is_default:
            continue
        folder = Path(repository) / model
        if not folder.is_dir():
            raise InputError(f"there is no folder '{folder}' to write the configuration of '{model}' into")
        path = folder / "config.pbtxt"
        found.append(_File(path, model, path.read_bytes() if path.is_file() else None))
    return found


def _undo(files: Sequence[_File], control: ModelControl) -> None:
    for file in files:
        file.put_back()
    for file in files:
        control.reload(file.model)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}") from None
