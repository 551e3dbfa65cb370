"""Tries grammars in a process of its own before they are compiled in this one: a few lines can overflow the stack, take
gigabytes or run for minutes, and the library cannot be told to stop."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any, Final

from trireme.llm.grammar import trial_main
from trireme.machine.helper_process import HelperProcess

MAX_SECONDS: Final = 5.0
"""For one grammar; those that people write take milliseconds."""
_START_SECONDS: Final = 60.0
_OWN_END_S: Final = 0.2
"""For a process that has closed its pipe, to end by itself."""
AT_A_TIME: Final = 4
"""So many grammars are tried at once: one that takes all of its time holds up no other as long as there are fewer."""
_PATIENCE_S: Final = 0.1
"""To start a process takes longer than most grammars do."""
_PROGRAM: Final = Path(trial_main.__file__).with_name("trial_main.py")


class TrialError(Exception):
    """The text says why a grammar is not to be compiled."""

    def __init__(self, reason: str, has_ended_trial: bool = False) -> None:
        """`has_ended_trial`: the process was at its end, which may go better on a machine that has less to do."""
        super().__init__(reason)
        self.has_ended_trial = has_ended_trial


class NoTrialError(RuntimeError):
    """A grammar could not be tried, for no fault of its own; the text says why."""


class GrammarTrials:
    """Tries several grammars at once, as `GrammarTrial` tries one. May be called from any thread."""

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        self._all = [GrammarTrial(max_seconds) for _ in range(AT_A_TIME)]
        self._idle = self._all.copy()
        """The last one has a process, or none of them has."""
        self._has_idle = threading.Condition()

    def check(self, source: str, vocabulary: Any) -> None:
        """As `GrammarTrial.check`, once there is one that is idle."""
        with self._has_idle:
            self._has_idle.wait_for(self._is_best_idle, _PATIENCE_S)
            self._has_idle.wait_for(lambda: self._idle)
            trial = self._idle.pop()
        try:
            trial.check(source, vocabulary)
        finally:
            self._give_back(trial)

    def close(self) -> None:
        """Ends the processes, also those that are at work."""
        for trial in self._all:
            trial.close()

    @property
    def pids(self) -> list[int]:
        """Of the processes that there are."""
        return [pid for trial in self._all if (pid := trial.pid) is not None]

    def _is_best_idle(self) -> bool:
        """Whether no better one is to be had in a moment: one has a process and is idle, or none has."""
        return bool(self._idle) and (self._idle[-1].pid is not None or not self.pids)

    def _give_back(self, trial: GrammarTrial) -> None:
        with self._has_idle:
            is_one_too_many = bool(self._idle) and self._idle[-1].pid is not None
            if is_one_too_many:
                trial.rest()
            self._idle.insert(0 if is_one_too_many else len(self._idle), trial)
            self._has_idle.notify()


class GrammarTrial:
    """Has one process, started with the first grammar and again after one that ended it. May be called from any thread;
    grammars are tried one after another."""

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._process: HelperProcess | None = None
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._is_closed = False

    def check(self, source: str, vocabulary: Any) -> None:
        """Raises TrialError where the grammar cannot be compiled, or not within the limits, and NoTrialError where
        that is not known. `vocabulary` has what the library reads; it is the same for all calls."""
        with self._turn:
            process = self._process
            if process is None or process.exit_code is not None:
                process = self._start(vocabulary)
            reason = self._ask(process, source, self._max_seconds)
        if reason is None:
            raise self._end_of(process)
        if reason:
            raise TrialError(reason)

    @property
    def pid(self) -> int | None:
        """Of the process that waits for grammars; None: there is none."""
        process = self._process  # which another thread may end meanwhile
        return None if process is None else process.pid

    def rest(self) -> None:
        """Ends the process until the next grammar comes."""
        with self._turn:
            if self._process is not None:
                self._process.kill()
            self._end()

    def close(self) -> None:
        """Ends the process, also one that is at work."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        with self._turn:
            self._end()

    def _start(self, vocabulary: Any) -> HelperProcess:
        self._end()
        try:
            with self._lock:
                if self._is_closed:
                    raise NoTrialError("the engine is closed")
                process = self._process = HelperProcess(str(_PROGRAM))
        except OSError as error:
            raise NoTrialError(f"the process that tries grammars cannot be started: {error}") from None
        if self._ask(process, _message(vocabulary), _START_SECONDS) != "":
            raise NoTrialError("the process that tries grammars cannot be started; what it wrote is in the log")
        return process

    def _ask(self, process: HelperProcess, message: Any, seconds: float) -> str | None:
        """None: the process has ended, by itself or because it was late."""
        try:
            line = process.ask([json.dumps(message).encode(), b"\n"], lambda stream: stream.readline(), seconds)
        except OSError:
            line = b""
        if line.endswith(b"\n"):
            return str(json.loads(line))
        self._end()
        return None

    def _end_of(self, process: HelperProcess) -> Exception:
        """Why a process has ended that was at work."""
        if self._is_closed:
            return NoTrialError("the engine is closed")
        if process.was_late:
            return TrialError(f"it takes longer than {self._max_seconds:g} s", has_ended_trial=True)
        if process.exit_code == -signal.SIGKILL:
            return NoTrialError("the process that tries grammars was killed; send the request again")
        if process.exit_code in (-signal.SIGSEGV, -signal.SIGBUS):
            return TrialError("it is nested too deeply", has_ended_trial=True)
        most = trial_main.MAX_MEMORY_BYTES >> 20
        return TrialError(f"it takes more than {most} MiB of memory", has_ended_trial=True)

    def _end(self) -> None:
        """Takes the process from the system, its pipes closed."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end(grace_s=0 if self._is_closed else _OWN_END_S)


def _message(vocabulary: Any) -> dict[str, Any]:
    return {
        "tokens": [token.decode("latin-1") for token in vocabulary.tokens],
        "special_token_ids": list(vocabulary.special_token_ids),
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_ids": list(vocabulary.eos_token_ids),
    }
