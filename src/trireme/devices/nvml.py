"""The server's side of the program that asks NVML: starts it, asks it, and ends it."""

from __future__ import annotations

import importlib.util
import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from trireme.devices.tool_run import TIMEOUT_S, ToolError

PROGRAM = Path(__file__).with_name("nvml_main.py")


def is_installed() -> bool:
    """Whether NVML can be asked from Python; nothing is imported to find out."""
    return importlib.util.find_spec("pynvml") is not None


class NvmlProcess:
    """A process that waits for questions; not to be used by two threads at once."""

    def __init__(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise ToolError(f"the reader of NVML cannot be started: {error}") from error

    def ask(self) -> list[dict[str, Any]]:
        """What every GPU tells now, in the driver's order; raises ToolError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            # An answer is one line, so nothing of it can wait in the buffer while the pipe is empty.
            if not select.select([self._process.stdout], [], [], TIMEOUT_S)[0]:
                raise ToolError(f"NVML did not answer within {TIMEOUT_S:g} s")
            line = self._process.stdout.readline()
        except (OSError, ValueError):  # ValueError: it was closed meanwhile
            line = ""
        if not line:
            raise ToolError(self._last_words() or "the reader of NVML has ended")
        try:
            answer: list[dict[str, Any]] = json.loads(line)
        except ValueError as error:
            raise ToolError(f"the reader of NVML said {line[:80]!r}") from error
        return answer

    def close(self) -> None:
        """Ends the process, at once where it hangs."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was not yet written has nobody to read it
                    pass

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        self._process.kill()
        try:
            lines = self._process.stderr.read().strip().splitlines()
        except ValueError:
            return ""
        return lines[-1] if lines else ""
