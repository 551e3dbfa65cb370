"""Tries grammars in a process of its own before they are compiled in this one: a few lines can overflow the stack, take
gigabytes or run for minutes, and the library cannot be told to stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from trireme.llm.grammar import trial_main

MAX_SECONDS: Final = 5.0
"""For one grammar; those that people write take milliseconds."""
_START_SECONDS: Final = 60.0
_PROGRAM: Final = Path(trial_main.__file__).with_name("trial_main.py")


class TrialError(Exception):
    """The text says why a grammar is not to be compiled."""


class GrammarTrial:
    """Has one process, started with the first grammar and again after one that ended it. May be called from any thread;
    grammars are tried one after another."""

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._is_closed = False

    def check(self, source: str, vocabulary: Any) -> None:
        """Raises TrialError where the grammar cannot be compiled, or not within the limits. `vocabulary` has what the
        library reads; it is the same for all calls."""
        with self._turn:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._start(vocabulary)
            reason = self._ask(process, source, self._max_seconds)
        if reason is None:
            raise TrialError(self._told(process))
        if reason:
            raise TrialError(reason)

    @property
    def pid(self) -> int | None:
        """Of the process that waits for grammars; None: there is none."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Ends the process, also one that is at work."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        with self._turn:
            self._end()

    def _start(self, vocabulary: Any) -> subprocess.Popen[bytes]:
        self._end()
        try:
            with self._lock:
                if self._is_closed:
                    raise TrialError("the engine is closed")
                process = self._process = subprocess.Popen(
                    [sys.executable, "-P", str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
        except OSError as error:
            raise TrialError(f"the process that tries grammars cannot be started: {error}") from None
        if self._ask(process, _message(vocabulary), _START_SECONDS) != "":
            raise TrialError("the process that tries grammars cannot be started; what it wrote is in the log")
        return process

    def _ask(self, process: subprocess.Popen[bytes], message: Any, seconds: float) -> str | None:
        """None: the process has ended, by itself or because it was late."""
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(seconds, process.kill)
        watch.daemon = True
        watch.start()
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        finally:
            watch.cancel()
        if line.endswith(b"\n"):
            return str(json.loads(line))
        self._end()
        return None

    def _told(self, process: subprocess.Popen[bytes]) -> str:
        """Why a process has ended that was at work."""
        if self._is_closed:
            return "the engine is closed"
        if process.returncode == -signal.SIGKILL:
            return f"it takes longer than {self._max_seconds:g} s"
        if process.returncode in (-signal.SIGSEGV, -signal.SIGBUS):
            return "it is nested too deeply"
        return f"it takes more than {trial_main.MAX_MEMORY_BYTES >> 20} MiB of memory"

    def _end(self) -> None:
        """Takes the process from the system, its pipes closed."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None and not self._is_closed:
            try:
                process.wait(timeout=0.2)  # it has closed its pipe and is about to end: its own status tells more
            except subprocess.TimeoutExpired:
                pass
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass  # what was not written yet never will be


def _message(vocabulary: Any) -> dict[str, Any]:
    return {
        "tokens": [token.decode("latin-1") for token in vocabulary.tokens],
        "special_token_ids": list(vocabulary.special_token_ids),
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_ids": list(vocabulary.eos_token_ids),
    }
