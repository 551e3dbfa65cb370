"""The options about workers: what becomes of them, and what is told about those that cannot be."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from trireme.app.worker_limits import unreadable_paths, worker_limits
from trireme.backends.python.process.confined_variables import confined_variables
from trireme.backends.worker_limits import WorkerLimits, WorkerUser
from trireme.config.options.server import ServerOptions
from trireme.core.errors import InvalidArgumentError

NAME = pwd.getpwuid(os.getuid()).pw_name


def test_without_options_there_are_no_limits_and_no_variables() -> None:
    assert worker_limits(ServerOptions()) == WorkerLimits()
    assert confined_variables(WorkerLimits(), {"HOME": "/root"}) == {}
    assert confined_variables(None, {}) == {}


@pytest.mark.parametrize("name", [NAME, str(os.getuid())])
def test_a_user_is_found_by_name_or_number(name: str) -> None:
    user = worker_limits(ServerOptions(worker_user=name)).user
    assert user is not None
    assert (user.name, user.uid) == (NAME, os.getuid())


def test_a_user_that_is_not_there_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match="--worker-user=nobody-there: there is no such user on this machine"):
        worker_limits(ServerOptions(worker_user="nobody-there"))


def test_only_root_can_have_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(InvalidArgumentError, match="only a server that runs as root"):
        worker_limits(ServerOptions(worker_user="nobody"))


def test_a_worker_is_told_its_limits_and_gets_the_home_of_its_user() -> None:
    user = WorkerUser("guest", 1000, 1001, (1001, 5), "/home/guest")
    told = confined_variables(WorkerLimits(1 << 30, 100, user, False), {"HOME": "/root", "USER": "root"})
    assert (told["HOME"], told["USER"]) == ("/home/guest", "guest")
    assert "LOGNAME" not in told
    assert json.loads(told["TRIREME_WORKER_CONFINEMENT"]) == {
        "memory_bytes": 1 << 30,
        "open_files": 100,
        "has_network": False,
        "uid": 1000,
        "gid": 1001,
        "groups": [1001, 5],
    }


def test_paths_that_a_user_cannot_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    python = closed / "python"
    python.write_text("")
    monkeypatch.setattr("sys.executable", str(python))
    stranger = WorkerUser("guest", 54321, 54321, (), "/")
    assert any(str(python).startswith(str(path)) for path in unreadable_paths(stranger))
    assert unreadable_paths(replace(stranger, uid=0)) == []
