"""Many traces on a disk that keeps whoever writes waiting."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from trireme.core.tensor import Tensor
from trireme.core.trace import Trace
from trireme.observe.files import trace_file
from trireme.observe.files.trace_file import TraceFile, TraceLog

SAFETY_S = 20.0
"""After which the disk takes it whatever happens, so that a test fails in place of hanging."""


class SlowDisk:
    """Takes nothing of a file before that is read; the file is written all the same."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._may_write = threading.Event()
        self._written = threading.Event()
        self._is_late = False
        self._write_all = trace_file._write_all
        monkeypatch.setattr(trace_file, "_write_all", self._write)

    def read(self) -> list[int]:
        """The traces in it, by their numbers; they were not waited for."""
        self._may_write.set()
        assert self._written.wait(SAFETY_S)
        assert not self._is_late, "nothing went on until the disk took it"
        return ids(self._path.read_bytes())

    def _write(self, file: FileIO, opening: bytes, traces: Sequence[bytes]) -> None:
        is_slow = os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        if is_slow:
            self._is_late = not self._may_write.wait(SAFETY_S)
        self._write_all(file, opening, traces)
        if is_slow:
            self._written.set()


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(tmp_path / "t.0", monkeypatch)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceFile]:
    monkeypatch.setattr(trace_file, "INLINE_BYTES", 100)
    made = TraceFile(str(tmp_path / "t"))
    yield made
    made.close()


def traced(number: int, request_id: str = "") -> Trace:
    trace = Trace(number, wants_tensors=False)
    trace.model_name, trace.model_version, trace.request_id = "pipeline", 1, request_id
    return trace


def ids(content: bytes) -> list[int]:
    return [record["id"] for record in json.loads(content)]


LARGE = "x" * 200


def test_many_traces_are_written_without_waiting_for_the_disk(file: TraceFile, slow: SlowDisk) -> None:
    TraceLog(file, 1).add(traced(1, LARGE))
    assert slow.read() == [1]


def test_what_comes_meanwhile_stands_behind_them(file: TraceFile, slow: SlowDisk, tmp_path: Path) -> None:
    numbered, whole = TraceLog(file, 1), TraceLog(file)
    numbered.add(traced(1, LARGE))
    numbered.add(traced(2))
    whole.add(traced(3))
    whole.close()
    whole.add(traced(4, LARGE))
    until(lambda: list(tmp_path.iterdir()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.0"]
    assert slow.read() == [1]
    file.close()
    assert ids((tmp_path / "t.1").read_bytes()) == [2]
    assert ids((tmp_path / "t").read_bytes()) == [3, 4]
    numbered.add(traced(5))
    assert ids((tmp_path / "t.2").read_bytes()) == [5]


def test_no_more_wait_than_the_limit_and_the_others_are_counted(
    file: TraceFile,
    slow: SlowDisk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trace_file, "MAX_WAITING_BYTES", 600)
    traces = TraceLog(file, 1)
    for number in range(1, 10):
        traces.add(traced(number, LARGE))
    assert slow.read() == [1]
    file.close()
    traces.add(traced(10))
    assert [ids((tmp_path / f"t.{number}").read_bytes()) for number in (1, 2)] == [[2], [10]]
    assert [record.getMessage() for record in caplog.records] == [
        f"the disk is too slow for the trace file '{tmp_path}/t': traces are dropped",
        f"the trace file '{tmp_path}/t.2' is written again; 7 traces are missing",
    ]


def test_more_traces_than_are_written_at_once_are_one_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_TRACES_AT_ONCE", 3)
    for count in (1, 2, 3, 4, 6, 7):
        file = TraceFile(str(tmp_path / f"t{count}"))
        for _ in range(2):
            log = TraceLog(file)
            for number in range(count):
                log.add(traced(number))
            log.close()
        assert ids((tmp_path / f"t{count}").read_bytes()) == [*range(count), *range(count)]


def test_many_values_become_text_in_the_thread_as_they_were_at_the_mark(tmp_path: Path) -> None:
    file = TraceFile(str(tmp_path / "t"))
    may_write = threading.Event()
    file._thread.submit(may_write.wait, SAFETY_S)  # which has so much to do
    trace = Trace(1, wants_tensors=True)
    child = trace.begin_child(2)
    memory = bytearray(np.arange(5000, dtype=np.float32).tobytes())
    child.keep("TENSOR_QUEUE_INPUT", [Tensor("IN", "FP32", (5000,), memoryview(memory))])
    TraceLog(file, 1).add(trace)
    assert list(tmp_path.iterdir()) == []
    memory[:] = bytes(len(memory))  # as a client does whose region it is
    may_write.set()
    file.close()
    records = json.loads((tmp_path / "t.0").read_bytes())
    assert [record["id"] for record in records] == [2, 2, 1]
    assert records[1]["tensor"]["data"] == ",".join(map(str, range(5000)))


def test_parts_of_many_values_are_one_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_VALUES_AT_ONCE", 2)
    texts = Tensor.from_numpy("T", np.array(["a", "b", "c"], object))
    halves = Tensor("H", "BF16", (3,), np.array([0x3F80, 0xC000, 0x3F00], "<u2").tobytes())
    tensors = [texts, halves, Tensor("B", "BOOL", (3,), b"\0\1\1"), Tensor("N", "FP32", (0,), b"")]
    described = [trace_file._described(tensor)["data"] for tensor in tensors]
    assert described == ['"a","b","c"', "1,-2,0.5", "0,1,1", ""]


def test_a_pipe_in_place_of_the_trace_file_holds_nobody_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "trace.json"
    os.mkfifo(path)
    file = TraceFile(str(path))
    file.append([b"{}"], 2)
    assert f"failed to write the trace file '{path}': No such device or address" in caplog.text
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        file.append([b'"%b"' % bytes(1 << 20)], 1 << 17)  # more than it holds
        file.append([b"{}"], 2)
    finally:
        os.close(reader)
    path.unlink()
    file.append([b'{"a":1}'], 7)
    file.append([b'{"a":2}'], 7)
    assert path.read_bytes() == b'[{"a":1},{"a":2}]'
    assert f"the trace file '{path}' is written again; 3 traces are missing" in caplog.text
