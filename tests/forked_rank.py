"""A rank of a model, forked from a process that has imported torch: from the one that forks commands where a test has
the first rank in its own process, and from the worker of a server, whose child it is to be.

From there on it is what its own program makes of it, from the sources that the first rank has imported. The program
from scratch has tests of its own.
"""

from __future__ import annotations

import functools
import logging
import os
import resource
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RANK = "rank"
"""In place of a command."""
PROGRAM = "rank_main.py"
FromScratch = subprocess.Popen


class RankForkingPopen(FromScratch):  # type: ignore[type-arg]
    """The usual one, and for the program of a rank a fork of this process, which has computed nothing yet."""

    def __init__(self, args: Any, *more: Any, **named: Any) -> None:
        self._is_rank = is_rank(args, named.get("pass_fds", ())) and set(named) == {"stdin", "pass_fds"}
        super().__init__(args, *more, **named)

    @functools.wraps(FromScratch._execute_child)  # type: ignore[attr-defined]
    def _execute_child(self, args: Any, *arguments: Any, **named: Any) -> None:
        if not self._is_rank:
            super()._execute_child(args, *arguments, **named)
            return
        self.pid = os.fork()
        if self.pid == 0:
            run(args[1:], [self._devnull, 1, 2, int(args[2])])
        self._child_created = True
        os.close(self._devnull)  # its standard input
        del self._devnull


def is_rank(words: Any, descriptors: Sequence[int]) -> bool:
    """Whether these are the words by which the program is started, with what it inherits."""
    if not isinstance(words, list) or len(words) != 3 or words[0] != sys.executable:
        return False
    return Path(words[1]).name == PROGRAM and [str(one) for one in descriptors] == words[2:]


def _forget_where_records_go() -> None:
    """A worker has them sent to its server."""
    logging.lastResort = logging._defaultLastResort  # type: ignore[attr-defined]
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "trireme" and isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.setLevel(logging.NOTSET)


def run(words: list[str], descriptors: list[int]) -> None:
    """The whole life of the rank, in the process that was forked for it; the last descriptor leads to the first one."""
    try:
        link = descriptors[3]
        for place, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, place)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(3, link)
        os.closerange(link + 1, min(limit, 1 << 16))
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _forget_where_records_go()
        for name in [name for name in sys.modules if name.partition(".")[0] == "trireme"]:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("trireme.")]
        subprocess.Popen = FromScratch  # type: ignore[misc]
        sys.argv = [words[0], str(link)]
        sys.path.insert(0, str(Path(words[0]).parent))
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        program.__file__ = words[0]
        exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), program.__dict__)
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)
