"""What is done for the worker processes of all models together: forking them, and sharing out the cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol


class ForkedProcess(Protocol):
    """The part of `subprocess.Popen` that a worker process needs."""

    pid: int
    stdout: IO[bytes]
    stderr: IO[bytes]

    def poll(self) -> int | None:
        """The return code, negative for a signal; None while the process lives."""

    def wait(self) -> int | None:
        """The same when the process has ended."""

    def send_signal(self, number: int) -> None:
        """Does nothing once the process has ended."""

    def kill(self) -> None:
        """Sends SIGKILL."""


class ProcessMarksPort(Protocol):
    """The marks by which the processes of this server are known."""

    def next(self) -> int:
        """A mark that no process has."""


class ForkServerPort(Protocol):
    """Where worker processes are forked. Used from the server's main thread."""

    @property
    def marks(self) -> ProcessMarksPort:
        """For all workers of this server, forked or not."""

    def fits(self, python: Path, environment: Mapping[str, str]) -> bool:
        """Whether workers of this interpreter with these variables can be forked."""

    async def fork(self, environment: Mapping[str, str], sock: int, side: int) -> ForkedProcess | None:
        """A worker over these two sockets. None where it has to be started from scratch, over others: a late worker
        may hold these."""


class WorkerLink(Protocol):
    """The way to one worker process."""

    def send(self, message: tuple[Any, ...]) -> None:
        """Sends without waiting until the worker has read it."""


class ComputingInstance(Protocol):
    """An instance whose worker computes on the processor."""

    @property
    def batch_count(self) -> int:
        """Grows with every batch."""

    @property
    def is_idle(self) -> bool:
        """Whether the worker has nothing to do."""

    @property
    def link(self) -> WorkerLink | None:
        """To the worker that serves now; None while there is none, or while it still loads."""


class ThreadSharesPort(Protocol):
    """Shares out the cores among busy workers. Used from the event loop's thread."""

    def join(self, instance: ComputingInstance, start_share: int, pid: Callable[[], int | None]) -> None:
        """From now on the instance counts, and its workers get their share of the cores: those that they start with,
        or fewer. `pid` tells the process of the present worker."""

    def leave(self, instance: ComputingInstance) -> None:
        """The counterpart of `join`; nothing where the instance did not join."""
