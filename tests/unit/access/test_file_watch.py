"""Files that are followed: a disk that hangs holds up neither the loop nor its end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path

import pytest
from waiting import until_on_loop

from trireme.access import file_watch
from trireme.access.file_watch import FileWatch


def test_a_disk_that_hangs_is_told_of_and_counts_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, gate, used = tmp_path / "keys", threading.Event(), []
    path.write_text("old")
    monkeypatch.setattr(file_watch, "INTERVAL_S", 0.001)
    monkeypatch.setattr(file_watch, "HANGS_S", 0.01)
    watch = FileWatch("keys", [path], path.read_text)
    watch.read_first()
    real_stat = os.stat

    def hanging_stat(name: object) -> os.stat_result:
        gate.wait(30)
        return real_stat(path)

    async def story() -> None:
        path.write_text("newer")
        monkeypatch.setattr(os, "stat", hanging_stat)
        watch.start(used.append)
        await until_on_loop(lambda: "has not answered" in caplog.text)
        assert used == []
        gate.set()
        await until_on_loop(lambda: used == ["newer"])
        watch.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())


def test_the_end_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, hung = threading.Event(), threading.Event()
    monkeypatch.setattr(file_watch, "INTERVAL_S", 0.001)
    watch = FileWatch("keys", [tmp_path], lambda: None)

    def hanging_stamp(paths: object) -> tuple[None, ...]:
        hung.set()
        gate.wait(30)
        return ()

    async def story() -> None:
        monkeypatch.setattr(file_watch, "_stamp_of", hanging_stamp)
        watch.start(lambda _: None)
        await until_on_loop(hung.is_set)
        watch.stop()

    try:
        asyncio.run(story())
        assert not gate.is_set()
        assert any(thread.name == "file-watch" for thread in threading.enumerate())  # it hangs still
    finally:
        gate.set()


def test_it_goes_on_where_no_thread_was_to_be_had_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, used, real_start = tmp_path / "keys", list[str](), threading.Thread.start
    path.write_text("old")
    monkeypatch.setattr(file_watch, "INTERVAL_S", 0.001)
    watch = FileWatch("keys", [path], path.read_text)
    watch.read_first()

    def no_start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        monkeypatch.setattr(threading.Thread, "start", no_start)
        watch.start(used.append)
        await until_on_loop(lambda: "could not be looked at" in caplog.text)
        monkeypatch.setattr(threading.Thread, "start", real_start)
        path.write_text("newer")
        await until_on_loop(lambda: used == ["newer"])
        watch.stop()

    asyncio.run(story())
