"""A server that is started for a while: for this machine alone, and gone with its log however the start ends."""

from __future__ import annotations

import stat
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from trireme.tools.analyze.options import ServerPlace
from trireme.tools.analyze.server.target import open_target
from trireme.tools.child_server import ChildServer
from trireme.tools.client.errors import UnreachableError

PROGRAM = """#!/bin/sh
echo "$@" > {folder}/words
echo $$ > {folder}/id
{rest}
"""


class Options:
    """What the target reads of the options of an analysis."""

    def __init__(self, folder: Path, rest: str, **flags: str) -> None:
        program = folder / "server"
        program.write_text(PROGRAM.format(folder=folder, rest=rest))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (folder / "repository").mkdir()
        self.repository = str(folder / "repository")
        self.place = ServerPlace(program=str(program), flags=flags)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_one_that_ends_at_once_leaves_no_log(tmp_path: Path, scratch: Path) -> None:
    options = Options(tmp_path, "echo no such flag; exit 1")
    with pytest.raises(UnreachableError, match="no such flag"), open_target(options, nullcontext):  # type: ignore[arg-type]
        pass
    assert list(scratch.iterdir()) == []
    words = (tmp_path / "words").read_text().split()
    assert {f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")} <= set(words)


def test_an_address_that_the_user_gives_is_used(tmp_path: Path) -> None:
    options = Options(tmp_path, "exit 1", http_address="0.0.0.0")
    with pytest.raises(UnreachableError), open_target(options, nullcontext):  # type: ignore[arg-type]
        pass
    words = (tmp_path / "words").read_text().split()
    assert [word for word in words if "http-address" in word] == ["--http-address=0.0.0.0"]


def test_an_interruption_of_the_start_ends_the_server(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(tmp_path, "exec sleep 60")

    def interrupted(server: ChildServer, *words: object, **named: object) -> None:
        end_s = time.monotonic() + 10
        while not (tmp_path / "id").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(ChildServer, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), open_target(options, nullcontext):  # type: ignore[arg-type]
        pass
    time.sleep(0.05)
    assert not Path(f"/proc/{(tmp_path / 'id').read_text().strip()}").exists()
    assert list(scratch.iterdir()) == []
