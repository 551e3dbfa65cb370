"""`pb_utils.Logger`, and standard logging as lines of the server's log."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.types import as_text


class Level(enum.Enum):
    """The levels of `Logger.log`."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_LETTER = {Level.INFO: "I", Level.WARNING: "W", Level.ERROR: "E", Level.VERBOSE: "V"}


class Logger:
    """Lines of the server's log that carry the model's file and line. Used through the class."""

    LogLevel = Level
    INFO = Level.INFO
    WARNING = Level.WARNING
    ERROR = Level.ERROR
    VERBOSE = Level.VERBOSE

    @staticmethod
    def log(message: str | bytes, level: Level = Level.INFO) -> None:
        if not isinstance(level, Level):
            raise TypeError(f"Logger.log: level must be one of Logger's levels, found {level!r}")
        _log(_LETTER[level], message)

    @staticmethod
    def log_info(message: str | bytes) -> None:
        _log("I", message)

    @staticmethod
    def log_warn(message: str | bytes) -> None:
        _log("W", message)

    @staticmethod
    def log_error(message: str | bytes) -> None:
        _log("E", message)

    @staticmethod
    def log_verbose(message: str | bytes) -> None:
        _log("V", message)


def _log(letter: str, message: str | bytes) -> None:
    frame = sys._getframe(2)
    write(letter, frame.f_code.co_filename, frame.f_lineno, as_text("Logger: the message", message))


def write(letter: str, path: str, line: int, message: str) -> None:
    """One entry of the server's log; on stderr where there is no server."""
    runtime = pb_runtime.find()
    if runtime is None:
        print(f"{letter} {os.path.basename(path)}:{line}] {message}", file=sys.stderr)
    elif letter != "V" or runtime.verbose_level > 0:
        runtime.channel.send((messages.LOG, letter, os.path.basename(path), line, message))


def route_standard_logging(*, from_info: bool = False) -> Callable[[], None]:
    """Records that no handler takes become entries of the server's log, in place of bare lines on stderr; returns what
    undoes it. The root logger, its handlers and `basicConfig` stay as they are: with the first handler that the model
    or a library adds, `logging.info` and its like included, records go there, and reach the log as what is printed
    does. Records below WARNING are nobody's until somebody sets a level; `from_info` sets it for the root."""
    import logging

    before, level = logging.lastResort, logging.root.level
    sets_level = from_info and level == logging.WARNING
    logging.lastResort = _server_log(logging.NOTSET if sets_level else logging.WARNING)
    if sets_level:
        logging.root.setLevel(logging.INFO)

    def undo() -> None:
        logging.lastResort = before
        if sets_level and logging.root.level == logging.INFO:
            logging.root.setLevel(level)

    return undo


def route_records_of(name: str) -> None:
    """Records of one logger and those below it become entries of the server's log too, from INFO on."""
    import logging

    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(_server_log(logging.INFO))
        logger.setLevel(logging.INFO)


def _server_log(level: int) -> Any:
    import logging

    class ServerLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                write(_letter(record.levelno), record.pathname, record.lineno, _text(self, record))
            except Exception:
                self.handleError(record)

    def _letter(level: int) -> str:
        if level >= logging.ERROR:
            return "E"
        if level >= logging.WARNING:
            return "W"
        return "I" if level >= logging.INFO else "V"

    def _text(handler: Any, record: logging.LogRecord) -> str:
        runtime = pb_runtime.find()
        text = str(handler.format(record))
        return text if runtime is None else f"[{runtime.instance_name}] {text}"

    return ServerLog(level)
