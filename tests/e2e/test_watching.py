"""A person at work on a model: what fails is summed up once, and --watch serves the file once it is mended."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, port_flags, three_ports, write_model

GOOD = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values * {factor})]) for values in inputs]
"""
BROKEN = GOOD.replace("(self, requests)", "(self requests)")


class WatchingServer(RunningServer):
    """`trireme serve --watch`, as a person types it."""

    def __init__(self, folder: Path) -> None:
        self.ports = three_ports()
        command = [sys.executable, "-m", "trireme", "serve", "model_repository", "--watch"]
        self._start(folder, [*command, *port_flags(self.ports)])


def test_the_table_of_models_has_those_that_could_not_be_read(tmp_path: Path) -> None:
    write_model(tmp_path, "mine", GOOD.format(factor=2))
    write_model(tmp_path, "garbled", GOOD.format(factor=2))
    (tmp_path / "model_repository/garbled/config.pbtxt").write_text('backend "python"')
    with WatchingServer(tmp_path) as running:
        running.wait_until_listening()
        assert "| garbled | -       | Not loaded |\n| mine    | 1       | READY      |\n" in running.log
        assert "1 failed:\n  garbled: config.pbtxt line 1: " in running.log


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WatchingServer]:
    write_model(tmp_path, "mine", BROKEN)
    with WatchingServer(tmp_path) as running:
        running.wait_until_listening()
        yield running


def test_failure_is_told_once_and_the_mended_file_is_served(server: WatchingServer, tmp_path: Path) -> None:
    server.until(lambda: "It watches model_repository" in server.log)
    place = "model_repository/mine/1/model.py:5"
    assert f"1 failed:\n  mine: SyntaxError in model.py line 5: invalid syntax\n      {place}\n" in server.log
    assert "          def execute(self requests):\n" in server.log
    assert "\x1b" not in server.log
    model = tmp_path / "model_repository/mine/1/model.py"
    model.write_text(GOOD.format(factor=2))
    server.until_ready("mine")
    assert server.infer("mine", 1, 2)[1]["outputs"][0]["data"] == [2, 4]
    assert server.log.count("SyntaxError") == 1
    model.write_text(BROKEN)
    server.until(
        lambda: "'mine' is loaded again as soon as its files change; the copy before it serves on" in server.log
    )
    assert server.infer("mine", 3)[1]["outputs"][0]["data"] == [6]
    assert server.log.count("SyntaxError") == 2
    assert server.log.count(f"1 failed:\n  mine: SyntaxError in model.py line 5: invalid syntax\n      {place}\n") == 2
    model.write_text(GOOD.format(factor=5))
    server.until(lambda: server.infer("mine", 1)[1]["outputs"][0]["data"] == [5])
    assert json.loads(server.ask("GET", "/v2/models/mine/stats")[2])["model_stats"]
