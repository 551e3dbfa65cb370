"""The processes of a model's other ranks: started by the first, or handed over by mpirun's, watched, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks.mpi import connect_to_host, hosted_ranks
from trireme.llm.executors.ranks.program import start_rank

START_S = 180.0
"""So long ranks may take to start, or to meet, beyond what they load."""
_END_S = 5.0
_LAST_WORDS_S = 2.0
"""So long a rank whose connection is gone has to come to its end."""


class RankError(ExecutorError):
    """A rank that has ended or failed; the text names it."""


@dataclass(slots=True)
class _Rank:
    number: int
    link: socket.socket
    """Orders go there, and what the rank has to say comes from there, a line of JSON each."""
    process: subprocess.Popen[bytes] | None
    """None: mpirun's."""
    pid: int = 0
    pending: bytes = b""

    def read(self, limit_s: float | None = None) -> dict[str, Any] | None:
        """The next line; None where the rank is gone. Raises TimeoutError where it says nothing for so long."""
        end_s = None if limit_s is None else time.monotonic() + limit_s
        try:
            while b"\n" not in self.pending:
                self.link.settimeout(None if end_s is None else max(0.001, end_s - time.monotonic()))
                piece = self.link.recv(65536)
                if not piece:
                    return None
                self.pending += piece
            self.link.settimeout(None)
        except TimeoutError:
            raise
        except OSError:
            return None
        line, _, self.pending = self.pending.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


class RankProcesses:
    """All ranks but the first, which owns this. `failure` names the one that ended first."""

    def __init__(self, setups: Sequence[str], first_rank: int = 1) -> None:
        """Starts a process for each setup, which is sent to it; raises RankError where one cannot be started."""
        self.failure = ""
        self._count = first_rank + len(setups)
        self._is_ending = False
        self._has_failed = threading.Event()
        self._ranks: list[_Rank] = []
        try:
            for number, setup in enumerate(setups, first_rank):
                self._ranks.append(self._open(number))
                self.send_line(number, setup)
        except OSError as error:
            self.close()
            raise RankError(f"rank {number} cannot be started: {error}") from None

    def lines(self, limit_s: float) -> list[dict[str, Any]]:
        """The next line of each rank; raises RankError where one is gone, has failed and says why, or has said nothing
        for so long that it must hang."""
        found = []
        end_s = time.monotonic() + limit_s
        for rank in self._ranks:
            try:
                line = rank.read(max(0.0, end_s - time.monotonic()))
            except TimeoutError:
                raise RankError(
                    f"{self._name_of(rank)} hangs: it has said nothing for {limit_s:.0f} s after the first rank was "
                    "done with the same"
                ) from None
            if line is None or "error" in line:
                raise RankError(self._ending(rank, line))
            rank.pid = int(line.get("pid", rank.pid))
            found.append(line)
        return found

    def watch(self, on_failure: Any) -> None:
        """From now on the end of a rank is a failure; `on_failure` is called once, in another thread."""
        for rank in self._ranks:
            name = f"llm-rank-{rank.number}"
            threading.Thread(target=self._watch, args=(rank, on_failure), name=name, daemon=True).start()

    def send(self, message: bytes) -> None:
        """The same order to all; raises RankError where one is gone."""
        for rank in self._ranks:
            try:
                rank.link.sendall(message)
            except OSError as error:
                raise self.blamed(error) from None

    def send_line(self, number: int, text: str) -> None:
        """A line of JSON for one rank."""
        next(rank for rank in self._ranks if rank.number == number).link.sendall(text.encode() + b"\n")

    def blamed(self, error: Exception) -> Exception:
        """The failure of a rank that explains an error, where one comes to light in a moment; else the error."""
        self._has_failed.wait(_LAST_WORDS_S)
        return RankError(self.failure) if self.failure else error

    def check(self) -> None:
        """Raises RankError where a rank has ended."""
        if self.failure:
            raise RankError(self.failure)

    def close(self) -> None:
        """Ends all of them; those that do not come to an end are killed."""
        self._is_ending = True
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                rank.link.shutdown(socket.SHUT_RDWR)
            rank.link.close()
        end = time.monotonic() + _END_S
        for rank in self._ranks:
            if rank.process is not None:
                try:
                    rank.process.wait(max(0.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    rank.process.kill()
                    rank.process.wait()

    def _open(self, number: int) -> _Rank:
        if number in hosted_ranks(os.environ):
            return _Rank(number, connect_to_host(os.environ, number), None)
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_rank(theirs)
        return _Rank(number, ours, process, process.pid)

    def _watch(self, rank: _Rank, on_failure: Any) -> None:
        line = rank.read()
        if self._is_ending or self._has_failed.is_set():
            return
        self.failure = self.failure or self._ending(rank, line)
        self._has_failed.set()
        on_failure()

    def _name_of(self, rank: _Rank) -> str:
        return f"rank {rank.number} of {self._count}" + (f" (process {rank.pid})" if rank.pid else "")

    def _ending(self, rank: _Rank, line: dict[str, Any] | None) -> str:
        name = self._name_of(rank)
        if line is not None:
            return f"{name} has failed: {line.get('error')}"
        if rank.process is None:
            return f"{name} has ended"
        try:
            code = rank.process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return f"{name} does not answer any more"
        if code < 0:
            return f"{name} was ended by {_signal_name(-code)}"
        return f"{name} has ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
