"""A start on a system that has no room for another process."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

import pytest

from trireme.app import launch
from trireme.config.options.server import ServerOptions


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one process")
def test_a_server_whose_front_ends_cannot_be_forked_has_one_process_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    starter, options = launch._front_end_starter(ServerOptions(frontend_processes=2, notices=("another",)))
    assert starter is None
    assert options.notices == (
        "another",
        "no front-end process can be started: [Errno 11] Resource temporarily unavailable; "
        "the server process itself serves all clients",
    )
