"""What the worker processes of a server may not do or take, where it is told so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerUser:
    """The user that workers become before they read a model's code."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Of every worker by itself; None is without limit."""

    memory_bytes: int | None = None
    """`--worker-memory-limit`."""
    open_files: int | None = None
    """`--worker-open-files`."""
    user: WorkerUser | None = None
    """`--worker-user`; None: the server's own."""
    has_network: bool = True
    """`--worker-network`."""
