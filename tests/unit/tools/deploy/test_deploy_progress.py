"""The bar and the lines that show how far something has come."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trireme.tools.deploy.progress import Progress, children_bytes, fitted, folder_bytes

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_nobody_watches_there_are_plain_lines() -> None:
    stream, measured = io.StringIO(), threading.Event()

    def measure() -> int:
        measured.set()
        return MIB

    with Progress("fetching m", 4 * MIB, measure, stream, line_interval_s=0.001):
        assert measured.wait(5)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "fetching m: 4.0 MiB"
    assert re.fullmatch(r"fetching m: 25%, 1\.0 MiB of about 4\.0 MiB, \d+ s", lines[1])
    assert re.fullmatch(r"fetching m: done after \d+\.\d s", lines[-1])
    assert "\r" not in stream.getvalue()


def test_a_terminal_gets_a_bar_that_is_taken_away_at_the_end() -> None:
    stream = Terminal()
    progress = Progress("loading m", 4 * MIB, lambda: 3 * MIB, stream)
    with progress:
        pass
    progress.stop("failed")
    drawn = stream.getvalue()
    assert drawn.startswith("loading m [##################------]  75%, 3.0 MiB of about 4.0 MiB, 0 s")
    assert re.search(r"\r\x1b\[Kloading m: done after 0\.\d s\n$", drawn)


def test_a_bar_that_does_not_fit_into_a_row_is_left_out_and_the_rest_is_cut() -> None:
    stream = Terminal()
    with Progress(f"loading {'long-' * 9}", 4 * MIB, lambda: 3 * MIB, stream):
        pass
    first, _, _ = stream.getvalue().partition("\x1b")
    assert first == fitted(f"loading {'long-' * 9}: 75%, 3.0 MiB of about 4.0 MiB, 0 s", 80)
    assert (fitted("abcdef", 7), fitted("abcdef", 6), fitted("模型模型", 6)) == ("abcdef", "abcde", "模型")


def test_a_line_of_the_log_takes_the_whole_row_of_the_bar() -> None:
    stream, log = Terminal(), logging.getLogger("test_deploy_progress")
    log.propagate = False
    log.addHandler(logging.StreamHandler(stream))
    with Progress("loading m", 4 * MIB, lambda: 3 * MIB, stream):
        log.error("short")
    log.error("later")
    assert "\r\x1b[Kshort\n" in stream.getvalue()
    assert stream.getvalue().endswith(" s\nlater\n")


def test_more_than_expected_is_all_of_it_and_a_failure_is_said() -> None:
    stream = Terminal()
    with pytest.raises(OSError), Progress("loading m", MIB, lambda: 2 * MIB, stream):
        raise OSError
    assert "100%" in stream.getvalue()
    assert stream.getvalue().endswith(" s\n")
    assert "loading m: failed after" in stream.getvalue()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_end_from_outside_is_said(kind: type[BaseException]) -> None:
    stream = Terminal()
    with pytest.raises(kind), Progress("loading m", MIB, lambda: MIB, stream):
        raise kind
    assert "loading m: interrupted after" in stream.getvalue()


def test_a_folder_is_what_its_files_are_and_links_are_not_counted_twice(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/one.incomplete").write_bytes(bytes(100))
    (tmp_path / "link").symlink_to(tmp_path / "blobs/one.incomplete")
    assert folder_bytes(tmp_path) == 100
    assert folder_bytes(tmp_path / "nowhere") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_child_processes_is_counted() -> None:
    before = children_bytes()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert children_bytes() > before
    finally:
        child.communicate(b"\n")
