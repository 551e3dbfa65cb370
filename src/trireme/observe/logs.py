"""The server's log: its settings, the form of its lines, and where they go."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.observe.files.log_file import LogFile
from trireme.observe.recent.lines import RecentLines
from trireme.observe.terminal.appearance import Stream, painted

ROOT = "trireme"
FORMATS = ("default", "ISO8601")
SETTING_NAMES = ("log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format")


@dataclass(slots=True)
class LogSettings:
    """What is logged, how and where; the mutable owner of these settings. `configure` makes them take effect."""

    log_file: str = ""
    """Where the lines go; "" is standard error."""
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0
    """Above 0, verbose lines are logged too."""
    log_format: str = "default"
    """`default` or `ISO8601`."""

    def as_dict(self) -> dict[str, bool | int | str]:
        """Every setting by its name."""
        return {name: getattr(self, name) for name in SETTING_NAMES}

    def update(self, changes: Mapping[str, bool | int | str]) -> None:
        """Takes these settings over and configures the log anew; raises ServingError and changes nothing where a
        name or a format is not known or the file cannot be opened. Types are the caller's to check."""
        for name in changes:
            if name not in SETTING_NAMES:
                raise InvalidArgumentError(f"unknown log setting '{name}'; known are {', '.join(SETTING_NAMES)}")
        if "log_format" in changes and changes["log_format"] not in FORMATS:
            raise UnavailableError(f"invalid argument for --log_format, got: {changes['log_format']}")
        before = self.as_dict()
        self._assign(changes)
        try:
            configure(self)
        except OSError as error:
            self._assign(before)
            raise UnavailableError(f"failed to open log file '{changes.get('log_file')}': {error.strerror}") from error

    def is_enabled(self, level: int) -> bool:
        """Whether a line of this level is wanted."""
        if level < logging.INFO:
            return self.log_verbose_level > 0
        if level < logging.WARNING:
            return self.log_info
        return self.log_warning if level < logging.ERROR else self.log_error

    def _assign(self, values: Mapping[str, bool | int | str]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


_FORGED = re.compile(r"\n(?=[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\dT\d\d:)")
"""Line feeds in front of what looks like a line of its own."""
_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f]|{_FORGED.pattern}")
"""These, and what would move a terminal's cursor or colour it."""


_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in (*range(0x20), *range(0x7F, 0xA0))}
del _ESCAPES[ord("\t")], _ESCAPES[ord("\n")]
_MOST_CHARACTERS: Final = 64 << 10
"""Of a message: what is longer holds up whoever writes it."""


def _escaped(message: str) -> str:
    """The message without characters that do something: names and texts in it may come from anybody."""
    if len(message) > _MOST_CHARACTERS:
        message = f"{message[:_MOST_CHARACTERS]}... ({len(message) - _MOST_CHARACTERS} characters more)"
    if _CONTROLS.search(message) is None:
        return message
    return _FORGED.sub(r"\\n", message).translate(_ESCAPES)


class LineFormatter(logging.Formatter):
    """`I0605 19:30:49.849066 98 file.py:2495] message`, in UTC; the message unquoted, controls escaped. Warnings and
    errors stand out where the lines go to a terminal."""

    def __init__(self, log_format: str, terminal: Stream | None = None) -> None:
        super().__init__()
        self._is_iso = log_format == "ISO8601"
        self._terminal = terminal

    def format(self, record: logging.LogRecord) -> str:
        moment = time.gmtime(record.created)
        letter = _letter(record.levelno)
        if self._is_iso:
            head = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', moment)} {letter}"
        else:
            micros = int(record.created % 1 * 1_000_000)
            head = f"{letter}{time.strftime('%m%d %H:%M:%S', moment)}.{micros:06d}"
        message = _escaped(record.getMessage())
        if record.exc_info:
            message = f"{message}\n{_escaped(self.formatException(record.exc_info))}"
        head = f"{head} {record.process} {record.filename}:{record.lineno}]"
        if self._terminal is not None and letter != "I":
            head = painted(head, "yellow" if letter == "W" else "red", self._terminal)
        return f"{head} {message}"


class _LevelFilter(logging.Filter):
    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._settings = settings

    def filter(self, record: logging.LogRecord) -> bool:
        return self._settings.is_enabled(record.levelno)


def configure(settings: LogSettings) -> None:
    """Installs the handler of these settings on the `trireme` logger in place of the one before.

    Raises OSError, and leaves the log as it was, where the log file cannot be opened.
    """
    handler = _open_handler(settings)
    handler.setFormatter(LineFormatter(settings.log_format, None if settings.log_file else sys.stderr))
    handler.addFilter(_LevelFilter(settings))
    logger = logging.getLogger(ROOT)
    kept = [old for old in logger.handlers if isinstance(old, RecentLines)]
    replaced, logger.handlers = logger.handlers, [handler, *kept]
    for old in replaced:
        if old not in kept:
            old.close()
    logger.propagate = False
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    # The lowest wanted level, so that lines nobody wants cost no record.
    logger.setLevel(next((level for level in levels if settings.is_enabled(level)), logging.CRITICAL + 1))


def keep_lines() -> RecentLines:
    """Keeps the last lines in memory from now on, whatever becomes of the settings."""
    lines = RecentLines()
    logging.getLogger(ROOT).addHandler(lines)
    return lines


def in_report(model: str) -> dict[str, str]:
    """The `extra` of a line about a model that could not be loaded, which its report tells of as well."""
    return {"reported_model": model}


@contextmanager
def leaving_out_reported(models: Collection[str] | None = None) -> Iterator[None]:
    """Meanwhile what is marked as reported, of these models or of all, is not written: somebody shows the report. A
    model that is taken out of the collection is written about again."""

    def is_wanted(record: logging.LogRecord) -> bool:
        reported = getattr(record, "reported_model", None)
        return reported is None or (models is not None and reported not in models)

    handlers = logging.getLogger(ROOT).handlers
    for handler in handlers:
        handler.addFilter(is_wanted)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_wanted)


def _open_handler(settings: LogSettings) -> logging.Handler:
    if settings.log_file:
        return LogFile(settings.log_file)
    return logging.StreamHandler(sys.stderr)


def _letter(level: int) -> str:
    if level < logging.WARNING:
        return "I"
    return "W" if level < logging.ERROR else "E"
