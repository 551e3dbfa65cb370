"""What workers print, in the log."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable

import pytest
from waiting import until_on_loop

from trireme.backends.python.process import output_capture
from trireme.backends.python.process.log_budget import LINES_PER_S
from trireme.backends.python.process.output_capture import KEPT_LINES, OutputCapture


def with_pipe(
    test: Callable[[OutputCapture, int], Awaitable[None]], model: str = "m", instance: str = "m_0"
) -> OutputCapture:
    async def run() -> OutputCapture:
        capture = OutputCapture(asyncio.get_running_loop(), model, instance)
        read, write = os.pipe()
        capture.add(read, "stdout", logging.INFO)
        try:
            await test(capture, write)
        finally:
            os.close(write)
            capture.close()
        return capture

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="trireme")


def test_lines_are_logged_as_they_come_with_the_instance_named(caplog: pytest.LogCaptureFixture) -> None:
    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, b"one\ntw")
        await until_on_loop(lambda: len(capture.last_lines) == 1)
        os.write(write, b"o\n")
        await until_on_loop(lambda: len(capture.last_lines) == 2)

    with_pipe(test)
    assert [record.getMessage() for record in caplog.records] == ["[m_0] one", "[m_0] two"]
    assert caplog.records[0].name == "trireme.model.m"
    assert caplog.records[0].instance == "m_0"  # type: ignore[attr-defined]


def test_a_group_with_its_own_name_is_logged_with_the_model(caplog: pytest.LogCaptureFixture) -> None:
    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, b"hello\n")

    with_pipe(test, "llama", "fast_0")
    assert caplog.records[0].getMessage() == "[llama fast_0] hello"


def test_a_line_without_an_end_is_logged_after_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_capture, "PARTIAL_DELAY_S", 0.001)

    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, b"  1%\r 50%\r 99%")
        await until_on_loop(lambda: len(capture.last_lines) == 1)

    with_pipe(test)
    assert caplog.records[0].getMessage() == "[m_0]  99%"


def test_the_last_lines_are_kept_even_when_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="trireme.model.m")

    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, b"".join(b"line %d\n" % number for number in range(50)) + b"end")

    capture = with_pipe(test)
    assert capture.last_lines == [f"line {number}" for number in range(51 - KEPT_LINES, 50)] + ["end"]
    assert caplog.records == []


def test_reason_of_a_crash_is_kept_before_a_long_stack() -> None:
    stack = [f'  File "model.py", line {number} in deeper' for number in range(60)]
    said = ["loading", "Fatal Python error: Segmentation fault", *stack, "Extension modules: numpy (total: 1)"]

    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, "\n".join(said).encode() + b"\n")

    lines = with_pipe(test).last_lines
    assert (lines[:2], lines[-2:], len(lines)) == (said[1:3], said[-2:], KEPT_LINES)


def test_reason_of_a_crash_is_found_behind_a_line_without_an_end() -> None:
    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, b"x" * 5_000 + b"Fatal Python error: Segmentation fault\n" + b"  in deeper\n" * 30)

    assert with_pipe(test).last_lines[0] == "Fatal Python error: Segmentation fault"


def test_crash_of_somebody_else_is_forgotten_in_time() -> None:
    async def test(capture: OutputCapture, write: int) -> None:
        _write_all(write, b"Fatal Python error: Aborted\n")
        await asyncio.get_running_loop().run_in_executor(None, _write_all, write, b"well\n" * 3000)
        await until_on_loop(lambda: capture.last_lines == ["well"] * KEPT_LINES)

    with_pipe(test)


def test_bytes_that_are_no_text_and_endless_lines_do_no_harm() -> None:
    async def test(capture: OutputCapture, write: int) -> None:
        os.write(write, b"\xff\xfe\n" + b"x" * 20_000)
        await until_on_loop(lambda: len(capture.last_lines) == 2)

    capture = with_pipe(test)
    assert capture.last_lines[0] == "\ufffd\ufffd"
    assert len(capture.last_lines[1]) == 1000


def test_a_flood_of_lines_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    flood = b"\n" * 1_000_000 + b"".join(b"last %d\n" % number for number in range(KEPT_LINES))

    async def test(capture: OutputCapture, write: int) -> None:
        writing = asyncio.get_running_loop().run_in_executor(None, _write_all, write, flood)
        longest = 0.0
        while not writing.done():
            start = time.thread_time()  # what the loop's thread did itself, however busy the machine is
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - start)
        await until_on_loop(lambda: capture.last_lines[-1] == f"last {KEPT_LINES - 1}")
        assert longest < 0.5

    capture = with_pipe(test)
    messages = [record.getMessage() for record in caplog.records]
    logged = [message for message in messages if "dropped" not in message]
    dropped = [int(message.split()[1]) for message in messages if "dropped" in message]
    assert len(logged) + sum(dropped) == 1_000_000 + KEPT_LINES
    assert LINES_PER_S <= len(logged) < 20 * LINES_PER_S
    assert capture.last_lines == [f"last {number}" for number in range(KEPT_LINES)]


def test_long_lines_use_up_the_budget_too(caplog: pytest.LogCaptureFixture) -> None:
    async def test(capture: OutputCapture, write: int) -> None:
        line = b"x" * 10_000 + b"\n"
        await asyncio.get_running_loop().run_in_executor(None, _write_all, write, line * 1000 + b"end\n")
        await until_on_loop(lambda: capture.last_lines[-1] == "end")

    with_pipe(test)
    assert sum(len(record.getMessage()) for record in caplog.records) < 8 << 20
    assert "dropped" in caplog.records[-1].getMessage()


def test_nothing_counts_as_dropped_where_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="trireme.model.m")

    async def test(capture: OutputCapture, write: int) -> None:
        await asyncio.get_running_loop().run_in_executor(None, _write_all, write, b"\n" * 100_000 + b"end\n")
        await until_on_loop(lambda: capture.last_lines[-1] == "end")

    with_pipe(test)
    assert caplog.records == []


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data[: 1 << 16]) :]
