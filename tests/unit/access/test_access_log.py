"""The access log: its lines, and that no disk can stop those who write to it."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from trireme.access import access_log
from trireme.access.access_log import AccessLog
from trireme.access.log_lines import common_line, json_line
from trireme.access.tracked_request import AccessRecord, RequestTarget, TrackedRequest
from trireme.core.errors import InvalidArgumentError
from trireme.observe.prometheus import PageWriter

INFER = RequestTarget("HTTP", "POST", "/v2/models/adder/infer", "inference", "adder")


def record(status: int = 200, target: RequestTarget = INFER, model: str = "adder", **changes: Any) -> AccessRecord:
    values = {
        "time_s": 1_700_000_000.25,
        "peer": "10.0.0.7",
        "key": "ci",
        "target": target,
        "model": model,
        "status": status,
        "received_bytes": 12,
        "sent_bytes": 345,
        "duration_ns": 1_234_567,
        "request_count": 1,
        "is_cut_off": False,
    }
    return AccessRecord(**{**values, **changes})


def test_a_json_line_has_all_there_is_to_know() -> None:
    line = json_line(record())
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "peer": "10.0.0.7",
        "key": "ci",
        "protocol": "HTTP",
        "method": "POST",
        "path": "/v2/models/adder/infer",
        "group": "inference",
        "model": "adder",
        "status": 200,
        "received_bytes": 12,
        "sent_bytes": 345,
        "duration_us": 1234,
        "requests": 1,
        "cut_off": False,
    }


def test_a_common_line_is_one_that_tools_know() -> None:
    assert common_line(record()) == (
        b'10.0.0.7 - ci [14/Nov/2023:22:13:20 +0000] "POST /v2/models/adder/infer HTTP/1.1" 200 345 '
        b'"adder" 12 0.001235\n'
    )


@pytest.mark.parametrize(("code", "status"), [(0, 200), (16, 401), (7, 403), (8, 429), (5, 404), (13, 500), (2, 500)])
def test_a_common_line_tells_grpc_calls_in_the_numbers_of_http(code: int, status: int) -> None:
    target = RequestTarget("gRPC", "POST", "/inference.GRPCInferenceService/ModelInfer", "inference")
    assert f'ModelInfer HTTP/2.0" {status} '.encode() in common_line(record(code, target))
    assert json.loads(json_line(record(code, target)))["status"] == code


def test_a_common_line_has_a_number_for_a_client_that_left() -> None:
    assert b'HTTP/1.1" 499 ' in common_line(record(0, is_cut_off=True))
    assert json.loads(json_line(record(0, is_cut_off=True)))["cut_off"] is True


@pytest.mark.parametrize("line", [json_line, common_line])
@pytest.mark.parametrize("nasty", ['a\nb"c', "\x1b[2J", "\\", "\x7f\x85\u2028", "\udcff", "\0"])
def test_nothing_that_a_client_sends_ends_a_line_or_moves_a_cursor(
    line: Callable[[AccessRecord], bytes], nasty: str
) -> None:
    written = line(record(target=RequestTarget("HTTP", "GET", f"/{nasty}", "health"), model=nasty))
    assert written.count(b"\n") == 1
    assert written[:-1].decode().isprintable()


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., AccessLog]]:
    made: list[AccessLog] = []

    def opened(**options: Any) -> AccessLog:
        made.append(AccessLog(str(tmp_path / "access.log"), **options))
        return made[-1]

    yield opened
    for log in made:
        log.close()


def lines(path: Path) -> list[int]:
    return [json.loads(line)["status"] for line in path.read_text().splitlines()]


def test_every_record_is_written_in_order(open_log: Callable[..., AccessLog], tmp_path: Path) -> None:
    log = open_log()
    for status in range(5000):
        log.record(record(status))
    log.close()
    assert lines(tmp_path / "access.log") == list(range(5000))
    assert log.dropped_count == 0


def test_a_disk_that_hangs_costs_lines_and_no_time(
    open_log: Callable[..., AccessLog],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(access_log.LineFile, "write", lambda sink, data: hangs.wait(60) and None)
    caplog.set_level(logging.WARNING, "trireme")
    log = open_log(max_waiting=100)
    began, computed = time.monotonic(), time.thread_time()
    for status in range(10_000):
        log.record(record(status))
    assert time.thread_time() - computed < 1.0
    assert time.monotonic() - began < 30, "half as long as a single write hangs"
    assert log.dropped_count >= 10_000 - 100 - 1024
    hangs.set()
    log.close()
    place = tmp_path / "access.log"
    assert [entry.getMessage() for entry in caplog.records] == [
        f"the access log '{place}' is not written fast enough; lines are dropped until it is",
        f"the access log '{place}' is written again; {log.dropped_count} lines are missing",
    ]


def test_names_of_any_length_are_written_down_cut() -> None:
    kept: list[AccessRecord] = []
    name = "m" * 60_000
    path = f"/v2/models/{name}/infer"
    tracked = TrackedRequest(
        RequestTarget("HTTP", "POST", path, "inference", name), "10.0.0.7", None, SimpleNamespace(record=kept.append)
    )
    tracked.end()
    line = json.loads(json_line(kept[0]))
    assert line["path"] == f"{path[:1024]}..."
    assert line["model"] == f"{name[:256]}..."
    assert not kept[0].target.model


def test_a_full_disk_is_told_once_and_lines_come_again_when_it_has_room(
    open_log: Callable[..., AccessLog],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_full = True
    write = os.write

    def limited(descriptor: int, data: bytes) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(access_log.os, "write", limited)
    caplog.set_level(logging.WARNING, "trireme")
    log = open_log()
    for status in range(3):
        log.record(record(status))
        until(lambda wanted=status + 1: log.dropped_count == wanted)  # type: ignore[misc]
    is_full = False
    log.record(record(7))
    log.close()
    assert lines(tmp_path / "access.log") == [7]
    place = tmp_path / "access.log"
    assert [entry.getMessage() for entry in caplog.records] == [
        f"the access log '{place}' cannot be written: No space left on device; lines are dropped until it can",
        f"the access log '{place}' is written again; 3 lines are missing",
    ]


def test_a_file_that_cannot_be_opened_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be opened: No such file or directory; name a file in a fol"):
        AccessLog(str(tmp_path / "missing" / "access.log"))


def test_lines_and_drops_are_metrics(open_log: Callable[..., AccessLog]) -> None:
    log = open_log(max_waiting=0)
    log.record(record())
    writer = PageWriter()
    log.write(writer)
    assert b"trireme_access_log_lines_total 0\n" in writer.page()
    assert b"trireme_access_log_dropped_total 1\n" in writer.page()
