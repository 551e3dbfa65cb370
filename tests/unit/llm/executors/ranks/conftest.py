"""Ranks that start quickly: forked from a process that has imported torch."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
from collections.abc import Iterator

import pytest

from trireme.llm.executors.ranks import processes
from trireme.llm.executors.ranks.follower import follow

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["torch", "torch.distributed", "safetensors"])


class ForkedRank:
    """What `rank_main.py` runs, in a process that looks like that of a program."""

    def __init__(self, link: socket.socket) -> None:
        self._process = _forking.Process(target=follow, args=(link,), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked rank", timeout or 0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests of what ranks compute; how their program starts and ends is tested with the program itself."""
    with monkeypatch.context() as patched:
        patched.setattr(processes, "start_rank", ForkedRank)
        yield
