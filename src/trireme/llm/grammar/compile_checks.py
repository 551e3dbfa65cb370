"""Compiles grammars in a process of its own before they are compiled in this one: a few lines can overflow the stack,
take gigabytes or run for minutes, and the library cannot be told to stop."""

from __future__ import annotations

import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

from trireme.llm.admission_errors import IsWanted, always
from trireme.llm.grammar import compile_check_main
from trireme.llm.grammar.compile_check_process import CheckProcess, CheckResult
from trireme.llm.grammar.compile_check_queue import TURN_SECONDS, CheckQueue, CheckUnavailableError

_NICENESS: Final = 5
"""Of checks behind the first turn: beside the engine's steps, and beside others' first turns."""
_MAX_KNOWN: Final = 1024


class CompileCheckError(Exception):
    """The text says why a grammar is not to be compiled."""

    def __init__(self, reason: str, is_costly: bool = False) -> None:
        """`is_costly`: the process was at its end, which may go better on a machine that has less to do."""
        super().__init__(reason)
        self.is_costly = is_costly


class CompileChecks:
    """Has one process, started with the first grammar and again after one that was killed. May be called from any
    thread."""

    def __init__(self, turn_seconds: Sequence[float] = TURN_SECONDS) -> None:
        self._turn_seconds = turn_seconds
        self._queue = CheckQueue()
        self._process: CheckProcess | None = None
        self._starting = threading.Lock()
        self._is_closed = False
        self._slow: OrderedDict[bytes, int] = OrderedDict()
        """By the digests of those that a turn was too short for: which is the next."""

    @contextmanager
    def checked(self, source: str, vocabulary: Any, is_wanted: IsWanted = always) -> Iterator[int]:
        """Checks a grammar, with at most how many bytes it takes as the context's value: until that ends it counts
        among those that are checked at once, so that not many more are compiled than may be checked.

        Raises CompileCheckError where it cannot be compiled, or not within the limits; CheckUnavailableError where that
        is not known; NotWantedError where nobody waits for it any more. `vocabulary` has what the library reads; it is
        the same for all calls.
        """
        digest = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for turn in range(self._slow.get(digest, 0), len(self._turn_seconds)):
            with self._queue.turn(turn, is_wanted):
                found = self._check_one(source, vocabulary, turn, is_wanted)
                if found is not None:
                    yield found.taken_bytes
                    return
            self._note_slow(digest, min(turn + 1, len(self._turn_seconds) - 1))
        raise CompileCheckError(f"it takes longer than {self._turn_seconds[-1]:g} s", is_costly=True)

    def check(self, source: str, vocabulary: Any, is_wanted: IsWanted = always) -> int:
        """The same without a context."""
        with self.checked(source, vocabulary, is_wanted) as taken_bytes:
            return taken_bytes

    def look_again(self) -> None:
        """To be called when it may be that a grammar is not wanted any more."""
        self._queue.look_again()
        process = self._process
        if process is not None:
            process.look_again()

    def close(self) -> None:
        """Ends the process, also one that is at work."""
        self._is_closed = True
        self._queue.close()
        process = self._process
        if process is not None:
            process.kill()  # also one that is being started
        with self._starting:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    @property
    def pid(self) -> int | None:
        """Of the process; None: there is none."""
        process = self._process  # which another thread may end meanwhile
        return None if process is None or process.is_gone else process.pid

    def _check_one(self, source: str, vocabulary: Any, turn: int, is_wanted: IsWanted) -> CheckResult | None:
        """None: the turn was too short."""
        process = self._running(vocabulary)
        try:
            found = process.check_one(source, self._turn_seconds[turn], _NICENESS if turn else 0, is_wanted)
        except CheckUnavailableError:
            if self._is_closed:
                raise CheckUnavailableError("the engine is closed") from None
            raise
        if found.failure:
            raise CheckUnavailableError(f"a grammar cannot be checked: {found.failure}")
        if found.reason:
            raise CompileCheckError(found.reason)
        if found.exit_code in (None, -signal.SIGPROF):
            return None
        if found.exit_code in (-signal.SIGSEGV, -signal.SIGBUS):
            raise CompileCheckError("it is nested too deeply", is_costly=True)
        if found.exit_code in (-signal.SIGABRT, compile_check_main.OUT_OF_MEMORY):
            most = compile_check_main.MAX_MEMORY_BYTES >> 20
            raise CompileCheckError(f"it takes more than {most} MiB of memory", is_costly=True)
        if found.exit_code == -signal.SIGKILL:
            raise CheckUnavailableError("the process that checks grammars was killed; send the request again")
        if found.exit_code:
            raise CheckUnavailableError(
                f"the process that checked a grammar ended with {found.exit_code}; send the request again"
            )
        return found

    def _running(self, vocabulary: Any) -> CheckProcess:
        with self._starting:
            if self._is_closed:
                raise CheckUnavailableError("the engine is closed")
            if self._process is not None and self._process.is_gone:
                self._process.end()
                self._process = None
            if self._process is None:
                self._process = CheckProcess(vocabulary)
                self._start(self._process)
            return self._process

    def _start(self, process: CheckProcess) -> None:
        if self._is_closed:
            process.kill()
        try:
            process.start()
        except CheckUnavailableError:
            self._process = None
            if self._is_closed:
                raise CheckUnavailableError("the engine is closed") from None
            raise

    def _note_slow(self, digest: bytes, turn: int) -> None:
        with self._starting:
            self._slow[digest] = turn
            self._slow.move_to_end(digest)
            if len(self._slow) > _MAX_KNOWN:
                self._slow.popitem(last=False)
