"""Writes the best configuration into the model's folder, measures it there, and takes it back if it does not hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from trireme.tools.analyze.configuration.variant_text import edited, variant_text
from trireme.tools.analyze.errors import PUT_BACK, ClientError, InputError, Interrupted
from trireme.tools.analyze.options import AnalyzeOptions
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.server.control import ModelControl
from trireme.tools.analyze.server.death_watchdog import DeathWatchdog
from trireme.tools.analyze.session import Session
from trireme.tools.analyze.trial import Result, throughput
from trireme.tools.client.errors import AnswerError

_KEPT_SHARE = 0.9
"""Of the throughput of what was searched that the new configuration must reach."""
_TURNS = 3
"""One that holds is enough: what else the machine does can only make it slower."""


@dataclass(frozen=True, slots=True)
class _File:
    """A configuration file, what it held, None where there was none, and what it is to hold."""

    path: Path
    model: str
    before: bytes | None
    after: bytes

    def write(self) -> None:
        """Raises InputError."""
        _write(self.path, self.after)

    def put_back(self) -> None:
        """Raises InputError."""
        if self.before is not None:
            _write(self.path, self.before)
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"'{self.path}' cannot be removed: {error.strerror}") from None


@dataclass(slots=True)
class _Seen:
    """What was measured of a new configuration as it is written, and of what was searched, in turns with it."""

    subject: Subject
    promised: Result
    as_written: list[Result] = field(default_factory=list)
    as_searched: list[Result] = field(default_factory=list)

    def holds(self) -> bool:
        """The last one, beside what the search had, or has at the same time: where that is slower as well, the
        configuration is not what has changed."""
        last = self.as_written[-1]
        beside = self.as_searched[len(self.as_written) - 1 :]
        return any(_holds(self.subject, one, last) for one in (self.promised, *beside))

    def text(self) -> str:
        """Its numbers, where the promise was not kept at once."""
        if not self.as_searched:
            return ""
        then, now, beside = throughput(self.promised), _most(self.as_written), _most(self.as_searched)
        return (
            f"{now:.1f} inferences per second as written, {beside:.1f} of what was searched when it was measured beside"
            f" that, {then:.1f} during the search"
        )


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
        with DeathWatchdog(partial(_undo_late, files, control)):
            code = max(code, _try(subject, files, session, control, tell))
    return code


def _try(
    subject: Subject, files: list[_File], session: Session, control: ModelControl, tell: Callable[[str], None]
) -> int:
    assert subject.best is not None
    paths, seen = ", ".join(str(file.path) for file in files), _Seen(subject, subject.best.best)
    try:
        if _is_as_good_as_written(seen, files, session):
            control.keep([file.model for file in files])
            slower = f"; the machine is slower than it was: {seen.text()}" if seen.as_searched else ""
            tell(f"{subject.title}: wrote {paths}; measured again, it holds{slower}")
            return 0
        reason = f"did not hold: {seen.text()}{_broken_bounds(seen)}"
    except Interrupted:
        problems = _undo(files, control)
        told = "\n".join(["interrupted", *problems]) if problems else f"interrupted; {paths} is as before"
        tell(f"{subject.title}: {told}")
        raise
    except ClientError as error:
        reason = f"could not be measured: {error}"
    if problems := _undo(files, control):
        raise AnswerError("\n".join([f"{subject.title}: the new configuration {reason}", *problems]))
    tell(f"{subject.title}: the new configuration {reason}; {paths} is as before")
    return PUT_BACK


def _is_as_good_as_written(seen: _Seen, files: Sequence[_File], session: Session) -> bool:
    """Writes the files, has the server load them, and measures; in turns with what was searched, without the files,
    where it is slower than that was. The files are there at the end of what holds."""
    trial = seen.promised.trial
    for _ in range(_TURNS):
        _use(files, session)
        seen.as_written.append(session.measure_as_it_is(trial))
        if seen.holds():
            return True
        _leave(files, session)
        seen.as_searched.append(session.measure_as_searched(trial))
        if seen.holds():
            _use(files, session)
            return True
    return False


def _use(files: Sequence[_File], session: Session) -> None:
    """By way of what was there before: a server goes on with what it runs where that has the same configuration."""
    _leave(files, session)
    for file in files:
        file.write()
        session.reload(file.model)


def _leave(files: Sequence[_File], session: Session) -> None:
    for file in files:
        file.put_back()
        session.reload(file.model)


def _holds(subject: Subject, promised: Result, result: Result) -> bool:
    if not subject.ranking.is_satisfying(result):
        return False
    pairs = zip(promised.measured, result.measured, strict=True)
    return all(
        after.metrics["perf_throughput"] >= _KEPT_SHARE * before.metrics["perf_throughput"] for before, after in pairs
    )


def _broken_bounds(seen: _Seen) -> str:
    is_kept = seen.subject.ranking.is_satisfying
    if any(map(is_kept, seen.as_written)):
        return ""
    told = "; it did not keep the constraints"
    return told if any(map(is_kept, seen.as_searched)) else f"{told}, and neither did what was searched"


def _most(results: Sequence[Result]) -> float:
    return max(map(throughput, results))


def _files(repository: str, subject: Subject) -> list[_File]:
    """Raises InputError."""
    best = subject.best
    assert best is not None
    found = []
    for model, setting in best.settings:
        if setting.is_default:
            continue
        folder = Path(repository) / model
        if not folder.is_dir():
            raise InputError(f"there is no folder '{folder}' to write the configuration of '{model}' into")
        path, config = folder / "config.pbtxt", subject.config_of(model, setting)
        before = path.read_bytes() if path.is_file() else None
        text = variant_text(config) if before is None else edited(_text(path, before), config, setting, str(path))
        found.append(_File(path, model, before, text.encode()))
    return found


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is no UTF-8 text: {error}") from None


def _undo(files: Sequence[_File], control: ModelControl) -> list[str]:
    """What could not be put back, as sentences; the other process goes on with it."""
    problems = [*_put_back(files), *control.put_back([file.model for file in files])]
    return [*problems, "another process tries for a while to put it back"] if problems else []


def _undo_late(files: Sequence[_File], control: ModelControl) -> None:
    """In another process, when this one is gone."""
    _put_back(files)
    control.put_back_late([file.model for file in files])


def _put_back(files: Sequence[_File]) -> list[str]:
    """All that can be; why others cannot."""
    problems = []
    for file in files:
        try:
            file.put_back()
        except InputError as error:
            problems.append(str(error))
    return problems


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}") from None
