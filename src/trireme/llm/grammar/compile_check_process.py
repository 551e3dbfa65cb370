"""The process that checks grammars, as the engine's process sees it: several at once, each in a child of that one."""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from trireme.llm.admission_errors import IsWanted, NotWantedError
from trireme.llm.grammar import compile_check_main
from trireme.llm.grammar.compile_check_queue import CheckUnavailableError
from trireme.llm.grammar.wide_objects import wide_objects
from trireme.machine.helper_process import HelperProcess

_START_SECONDS: Final = 60.0
_PATIENCE: Final = 2
"""So many times its processor time a check may take on a machine that has much else to do, and a moment more."""
_MOMENT_S: Final = 1.0
_ANSWER_S: Final = 10.0
"""So long the process may take to read what it is to do, and to tell of a check that it was to end."""
_PROGRAM: Final = Path(compile_check_main.__file__).with_name("compile_check_main.py")


class CheckResult(NamedTuple):
    """How a check has ended."""

    exit_code: int | None
    """Of the child, as `subprocess` has it; None: it took too long for its processor time, and was ended."""
    reason: str
    """Why the grammar cannot be compiled; "": it can, where the exit code is 0."""
    taken_bytes: int
    """What it took of the memory, at most."""
    failure: str = ""
    """Why there was no check."""


class CheckProcess:
    """May be used from any thread until it is gone."""

    def __init__(self, vocabulary: Any) -> None:
        """`vocabulary` has what the library reads. Raises CheckUnavailableError."""
        try:
            self._process = HelperProcess(str(_PROGRAM))
        except OSError as error:
            raise CheckUnavailableError(f"the process that checks grammars cannot be started: {error}") from None
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._under_way: dict[int, CheckResult | None] = {}
        self._vocabulary = vocabulary
        self._is_over = False

    def start(self) -> None:
        """Returns when it is ready; raises CheckUnavailableError."""
        reason = "; what it wrote is in the log"
        try:
            if self._is_ready():
                threading.Thread(target=self._listen, name="llm-grammar-checks", daemon=True).start()
                return
        except RuntimeError as error:  # there is no thread left
            reason = f": {error}"
        self.end()
        raise CheckUnavailableError(f"the process that checks grammars cannot be started{reason}")

    def _is_ready(self) -> bool:
        """Waits until it has read the vocabulary."""
        message = json.dumps(_message(self._vocabulary)).encode() + b"\n"
        try:
            line = self._process.ask([message], lambda stream: stream.readline(), _START_SECONDS)
        except OSError:
            return False
        return line.endswith(b"\n")

    @property
    def is_gone(self) -> bool:
        """Whether it cannot be asked any more."""
        return self._is_over or self._process.exit_code is not None

    @property
    def pid(self) -> int:
        return self._process.pid

    def check_one(self, source: str, seconds: float, niceness: int, is_wanted: IsWanted) -> CheckResult:
        """Checks it for so many seconds of processor time. Raises NotWantedError, or CheckUnavailableError where the
        process is gone, or hangs."""
        number = next(self._numbers)
        limit = time.monotonic() + _PATIENCE * seconds + _MOMENT_S
        with self._changed:
            self._under_way[number] = None
        try:
            self._send(f"{number} {seconds:g} {niceness} {json.dumps([source, *wide_objects(source)])}\n")
            found = self._heard_of(number, limit, is_wanted)
            return self._ended(number, is_wanted) if found is None else found
        except NotWantedError:
            self._send(f"{number}\n")
            raise
        finally:
            with self._changed:
                del self._under_way[number]

    def _ended(self, number: int, is_wanted: IsWanted) -> CheckResult:
        """Ends a check that has had its time. The process has only to tell of that: where it does not, the time was not
        the grammar's fault."""
        self._send(f"{number}\n")
        found = self._heard_of(number, time.monotonic() + _ANSWER_S, is_wanted)
        if found is None:
            self.kill()
            self._be_over()
            raise CheckUnavailableError("the process that checks grammars does not answer; send the request again")
        return CheckResult(None, "", 0) if found.exit_code == -signal.SIGKILL else found

    def _heard_of(self, number: int, limit: float, is_wanted: IsWanted) -> CheckResult | None:
        """How a check has ended; None where that is not known by then. Raises NotWantedError, or
        CheckUnavailableError."""
        with self._changed:
            while (found := self._under_way[number]) is None:
                left_s = limit - time.monotonic()
                if self._is_over:
                    raise CheckUnavailableError("the process that checks grammars was killed; send the request again")
                if not is_wanted():  # which is asked once: others may want it the moment after
                    raise NotWantedError
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            return found

    def look_again(self) -> None:
        """To be called when it may be that a grammar is not wanted any more."""
        with self._changed:
            self._changed.notify_all()

    def kill(self) -> None:
        """Ends it, and what it checks."""
        self._process.kill()

    def end(self) -> None:
        """The same, and takes it from the system."""
        self._process.kill()
        with self._sending:
            self._process.end()

    def _send(self, message: str) -> None:
        with self._sending:
            try:
                self._process.tell_within(_ANSWER_S, message.encode())
            except (OSError, ValueError):  # it is gone by now, which whoever listens hears as well
                self._be_over()

    def _listen(self) -> None:
        """In a thread of its own, until it is gone."""
        for line in self._process.lines():
            told = json.loads(line)
            answer = told["answer"] or {}
            with self._changed:
                if told["number"] in self._under_way:  # and was not given up meanwhile
                    self._under_way[told["number"]] = CheckResult(
                        told["exit_code"], answer.get("reason", ""), answer.get("bytes", 0), answer.get("failure", "")
                    )
                    self._changed.notify_all()
        self._be_over()

    def _be_over(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def _message(vocabulary: Any) -> dict[str, Any]:
    return {
        "tokens": [token.decode("latin-1") for token in vocabulary.tokens],
        "special_token_ids": list(vocabulary.special_token_ids),
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_ids": list(vocabulary.eos_token_ids),
    }
