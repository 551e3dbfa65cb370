"""A file of lines on a disk that fills up, and under a name that is moved, removed and put back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trireme.observe.files import line_file
from trireme.observe.files.line_file import LineFile


class PlayedClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> PlayedClock:
    return PlayedClock()


def test_lines_are_added_behind_those_of_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"earlier\n")
    file = LineFile(path)
    file.write(b"one\ntwo\n")
    file.close()
    assert path.read_bytes() == b"earlier\none\ntwo\n"


def test_a_file_that_cannot_be_opened_at_first_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LineFile(tmp_path / "missing" / "access.log")


def test_a_line_that_a_full_disk_has_cut_is_ended_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 7
    write = os.write

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(line_file.os, "write", limited)
    file = LineFile(tmp_path / "access.log")
    with pytest.raises(OSError, match="No space left"):
        file.write(b"one\ntwo\n")
    room = 100
    file.write(b"three\n")
    file.close()
    assert (tmp_path / "access.log").read_bytes() == b"one\ntwo\nthree\n"


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path, clock: PlayedClock) -> None:
    path = tmp_path / "access.log"
    file = LineFile(path, clock=clock)
    file.write(b"one\n")
    path.rename(tmp_path / "access.log.1")
    clock.now_s = 2.0
    file.write(b"two\n")
    path.unlink()
    clock.now_s = 4.0
    file.write(b"three\n")
    file.close()
    assert (tmp_path / "access.log.1").read_bytes() == b"one\n"
    assert path.read_bytes() == b"three\n"


def test_the_name_is_not_looked_at_for_every_line(tmp_path: Path, clock: PlayedClock) -> None:
    path = tmp_path / "access.log"
    file = LineFile(path, look_s=1.0, clock=clock)
    path.rename(tmp_path / "access.log.1")
    clock.now_s = 0.9
    file.write(b"one\n")
    assert not path.exists()
    clock.now_s = 1.1
    file.write(b"two\n")
    file.close()
    assert (tmp_path / "access.log.1").read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"


@pytest.mark.parametrize("pause_s", [0.01, 1.01, 3600.0])
def test_lines_come_again_with_their_folder_however_seldom_they_come(
    tmp_path: Path, clock: PlayedClock, pause_s: float
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = LineFile(folder / "access.log", clock=clock)
    folder.rename(tmp_path / "away")
    clock.now_s = 2.0
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            file.write(b"lost\n")
        clock.now_s += pause_s
    folder.mkdir()
    file.write(b"one\n")
    clock.now_s += pause_s
    file.write(b"two\n")
    file.close()
    assert (folder / "access.log").read_bytes() == b"one\ntwo\n"


def test_a_descriptor_that_went_bad_is_opened_anew(tmp_path: Path, clock: PlayedClock) -> None:
    path = tmp_path / "access.log"
    file = LineFile(path, clock=clock)
    os.close(file._descriptor)
    clock.now_s = 2.0
    file.write(b"one\n")
    file.close()
    assert path.read_bytes() == b"one\n"


def test_a_closed_file_is_opened_by_the_next_line(tmp_path: Path, clock: PlayedClock) -> None:
    file = LineFile(tmp_path / "access.log", clock=clock)
    file.close()
    file.close()
    clock.now_s = 2.0
    file.write(b"one\n")
    file.close()
    assert (tmp_path / "access.log").read_bytes() == b"one\n"


def test_pipe_that_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LineFile(path, look_s=0.0)
    path.rename(tmp_path / "old")
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device or address"):
        file.write(b"a line\n")
    path.unlink()
    file.write(b"another\n")
    assert path.read_bytes() == b"another\n"
    file.close()
