"""Logs and traces on a disk that is full for a while: a limit on the size of files stands for it."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trireme.core.trace import Trace
from trireme.observe.files import trace_file
from trireme.observe.files.trace_file import TraceFile, TraceLog
from trireme.observe.logs import LogSettings, configure

log = logging.getLogger("trireme.app.application")


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, action)


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_log_that_cannot_be_written_says_so_once_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.log"
    configure(LogSettings(log_file=str(path)))
    log.info("before")
    with files_of_at_most(path.stat().st_size + 10):
        for number in range(50):
            log.info("lost %d", number)
    log.info("after")
    assert [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()] == [
        f"the log '{path}' cannot be written: File too large; lines are dropped until it can"
    ]
    lines = path.read_text().splitlines()
    assert [lines[0].partition("] ")[2], *(line.partition("] ")[2] for line in lines[2:])] == [
        "before",
        "50 lines are missing here: the log could not be written",
        "after",
    ]
    assert len(lines[1]) == 10  # what there was room for


def test_each_time_the_disk_is_full_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    configure(LogSettings(log_file=str(path)))
    for _ in range(2):
        with files_of_at_most(1):
            log.info("lost")
        log.info("there is room again")
    assert capsys.readouterr().err.count("cannot be written") == 2
    assert path.read_text().count("1 line is missing here") == 2


def traced(number: int) -> Trace:
    trace = Trace(number, wants_tensors=False)
    trace.model_name, trace.model_version, trace.request_id = "pipeline", 1, "x" * 100
    return trace


def ids(path: Path) -> list[int]:
    return [record["id"] for record in json.loads(path.read_text())]


@pytest.mark.parametrize("frequency", [0, 1])
def test_traces_go_on_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frequency: int
) -> None:
    traces = TraceLog(TraceFile(str(tmp_path / "t")), frequency)
    traces.close()
    traces.add(traced(1))
    with files_of_at_most(100 if frequency else 180):
        for number in range(2, 10):
            traces.add(traced(number))
            for path in tmp_path.iterdir():
                assert ids(path) == [1]
    traces.add(traced(10))
    wanted = {"t.0": [1], "t.1": [10]} if frequency else {"t": [1, 10]}
    assert {path.name: ids(path) for path in tmp_path.iterdir()} == wanted
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition("'")[0] for message in messages] == ["failed to write the trace file ", "the trace file "]
    assert messages[1].endswith("is written again; 8 traces are missing")


def test_a_trace_file_that_could_not_be_begun_is_begun_later(tmp_path: Path) -> None:
    traces = TraceLog(TraceFile(str(tmp_path / "t")))
    traces.close()
    with files_of_at_most(10):
        traces.add(traced(1))
    assert list(tmp_path.iterdir()) == []
    traces.add(traced(2))
    traces.add(traced(3))
    (tmp_path / "t").unlink()
    traces.add(traced(4))
    assert ids(tmp_path / "t") == [4]


@pytest.mark.parametrize("frequency", [0, 1])
def test_a_file_of_an_earlier_run_stays_where_it_cannot_be_opened(tmp_path: Path, frequency: int) -> None:
    path = tmp_path / ("t.0" if frequency else "t")
    path.write_text("earlier")
    traces = TraceLog(TraceFile(str(tmp_path / "t")), frequency)
    traces.close()
    with no_more_descriptors():
        traces.add(traced(1))
    assert path.read_text() == "earlier"
    traces.add(traced(2))
    assert ids(path) == [2]


def test_what_was_written_stays_when_its_place_cannot_be_opened_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    traces = TraceLog(TraceFile(str(folder / "t")))
    traces.close()
    traces.add(traced(1))
    folder.rename(tmp_path / "away")
    traces.add(traced(2))
    (tmp_path / "away").rename(folder)
    traces.add(traced(3))
    assert ids(folder / "t") == [1, 3]


def test_a_file_that_was_there_is_left_empty_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("earlier")
    traces = TraceLog(TraceFile(str(path)))
    traces.close()
    with files_of_at_most(10):
        traces.add(traced(1))
    assert path.read_bytes() == b""
    traces.add(traced(2))
    assert ids(path) == [2]


def test_a_link_to_a_full_device_stays(tmp_path: Path) -> None:
    link = tmp_path / "t"
    link.symlink_to("/dev/full")
    traces = TraceLog(TraceFile(str(link)))
    traces.close()
    for number in range(2):
        traces.add(traced(number))
    assert link.readlink() == Path("/dev/full")


def test_a_file_that_was_emptied_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "t"
    traces = TraceLog(TraceFile(str(path)))
    traces.close()
    traces.add(traced(1))
    os.truncate(path, 0)
    with files_of_at_most(10):
        traces.add(traced(2))
    assert path.read_bytes() == b""
    traces.add(traced(3))
    traces.add(traced(4))
    assert ids(path) == [3, 4]


def test_traces_without_end_are_written_before_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "MAX_KEPT_BYTES", 1000)
    for frequency in (0, 1_000_000):
        traces = TraceLog(TraceFile(str(tmp_path / f"t{frequency}")), frequency)
        for number in range(20):
            traces.add(traced(number))
        assert len(traces._kept) < 10
        traces.close()
    assert ids(tmp_path / "t0") == list(range(20))
    assert [number for path in sorted(tmp_path.glob("t1000000.*")) for number in ids(path)] == list(range(20))
