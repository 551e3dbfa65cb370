"""A step that hangs in native code with Python's lock: its worker ends with its stack in the log; another serves."""

from __future__ import annotations

import json
from pathlib import Path

from running_server import RunningServer

SHIPPED = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe" / "1"
MODEL = """
import ctypes
import pathlib

from trireme.backends.llm import model
from trireme.llm.executors.numpy.executor import NumpyExecutor

submit = NumpyExecutor.submit
mark = pathlib.Path(__file__).parent / "hang"


def submit_or_hang(self, plan):
    if mark.exists():
        mark.unlink()
        ctypes.PyDLL(None).sleep(600)
    return submit(self, plan)


NumpyExecutor.submit = submit_or_hang
TritonPythonModel = model.TritonPythonModel
"""
CONFIG = f"""backend: "python"
parameters {{ key: "model" value: {{ string_value: "{SHIPPED}" }} }}
parameters {{ key: "executor" value: {{ string_value: "numpy" }} }}
parameters {{ key: "step_timeout_s" value: {{ string_value: "1" }} }}
"""


def test_a_worker_whose_step_keeps_the_interpreter_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "model_repository" / "held"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.py").write_text(MODEL)
    body = {"text_input": "Once upon a time", "max_tokens": 5}
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        server.until_ready("held")
        status, _, plain = server.ask("POST", "/v2/models/held/generate", body)
        assert status == 200, plain
        (folder / "1" / "hang").touch()
        status, _, text = server.ask("POST", "/v2/models/held/generate", body)
        assert status in (500, 503), text
        assert "error" in json.loads(text)
        server.until_ready("held")
        status, _, again = server.ask("POST", "/v2/models/held/generate", body)
        assert (status, again) == (200, plain)
        log = server.log
    assert "submit_or_hang" in log
