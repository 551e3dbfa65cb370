"""What a model writes, in the log of a real server: where it came from, and at which level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, write_model

TALKATIVE = """
import logging, sys, threading, traceback
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        print("printed in initialize")

    def execute(self, requests):
        order = int(pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()[0, 0])
        if order == 1:
            print("printed\\nin two lines")
            print("complained", file=sys.stderr)
            sys.stdout.write("without an end")
        elif order == 2:
            logging.getLogger("somewhere").warning("told %s", "standard logging")
            logging.getLogger("somewhere").info("hidden")
        elif order == 3:
            raise KeyError("no such word")
        elif order == 4:
            try:
                [][1]
            except IndexError:
                traceback.print_exc()
                logging.getLogger("somewhere").exception("it went on")
        elif order == 5:
            pb_utils.Logger.log_info("a line for triton")
            pb_utils.Logger.log_verbose("a line for the curious")
            pb_utils.Logger.log_error("a line for the night shift")
        elif order == 6:
            thread = threading.Thread(target=lambda: 1 / 0)
            thread.start()
            thread.join()
        out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
HEAD = r"\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("logs")
    write_model(folder, "talkative", TALKATIVE)
    with RunningServer(folder) as server:
        server.wait_until_listening()
        yield server


def expect(server: RunningServer, *patterns: str) -> None:
    """Each of them is, or soon will be, a whole line of the log."""
    for pattern in patterns:
        server.until(lambda pattern=pattern: re.search(f"^{pattern}$", server.log, re.MULTILINE), timeout_s=5)


def test_printed_lines_name_stream_and_instance(server: RunningServer) -> None:
    expect(server, rf"I{HEAD}stdout:0\] \[talkative_0\] printed in initialize")
    server.infer("talkative", 1)
    expect(
        server,
        rf"I{HEAD}stdout:0\] \[talkative_0\] printed",
        rf"I{HEAD}stdout:0\] \[talkative_0\] in two lines",
        rf"I{HEAD}stderr:0\] \[talkative_0\] complained",
        rf"I{HEAD}stdout:0\] \[talkative_0\] without an end",
    )


def test_standard_logging_names_file_line_and_instance(server: RunningServer) -> None:
    server.infer("talkative", 2)
    expect(server, rf"W{HEAD}model.py:18\] \[talkative_0\] told standard logging")
    assert "hidden" not in server.log


def test_an_exception_of_execute_is_in_the_log_with_instance_file_and_line(server: RunningServer) -> None:
    assert server.infer("talkative", 3)[0] == 500
    expect(
        server,
        rf"E{HEAD}\S+:\d+\] Failed to process the request\(s\) for model 'talkative_0', "
        r"message: KeyError: 'no such word'",
        r"  \S+/talkative/1/model.py\(21\): execute",
    )


def test_tracebacks_that_a_model_prints_or_logs_name_the_instance(server: RunningServer) -> None:
    server.infer("talkative", 4)
    expect(
        server,
        rf"I{HEAD}stderr:0\] \[talkative_0\] Traceback \(most recent call last\):",
        rf"I{HEAD}stderr:0\] \[talkative_0\] IndexError: list index out of range",
        rf"E{HEAD}model.py:27\] \[talkative_0\] it went on",
        "IndexError: list index out of range",
    )
    server.infer("talkative", 6)
    expect(server, rf"I{HEAD}stderr:0\] \[talkative_0\] ZeroDivisionError: division by zero")


def test_lines_of_the_logger_look_as_tritons_and_follow_the_verbose_level(server: RunningServer) -> None:
    server.infer("talkative", 5)
    expect(
        server,
        rf"I{HEAD}model.py:29\] a line for triton",
        rf"E{HEAD}model.py:31\] a line for the night shift",
    )
    assert "a line for the curious" not in server.log
    assert server.ask("POST", "/v2/logging", {"log_verbose_level": 1})[0] == 200
    server.infer("talkative", 5)
    expect(server, rf"I{HEAD}model.py:30\] a line for the curious")
    count = server.log.count("a line for the curious")
    assert server.ask("POST", "/v2/logging", {"log_verbose_level": 0})[0] == 200
    server.infer("talkative", 5)
    server.until(lambda: server.log.count("a line for the night shift") == 3)
    assert server.log.count("a line for the curious") == count
