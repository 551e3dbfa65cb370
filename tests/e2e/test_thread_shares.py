"""Two busy models of a real server: each computes with half of the cores."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from running_server import INT_CONFIG, RunningServer, write_model

from trireme.devices.cpu import core_count

COMPUTING = """
import time
import numpy as np
import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        end = time.process_time() + 0.02
        while time.process_time() < end:
            torch.ones(64, 64) @ torch.ones(64, 64)
        counts = np.array([[torch.get_num_threads()]], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", counts)]) for _ in requests]
"""


def thread_count(server: RunningServer, model: str) -> int:
    status, body = server.infer(model, 1)
    assert status == 200, body
    return int(body["outputs"][0]["data"][0])


@pytest.mark.skipif(core_count() < 2, reason="one core cannot be shared out")
def test_models_that_are_busy_at_once_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("first", "second"):
        write_model(tmp_path, name, COMPUTING, INT_CONFIG)
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        assert thread_count(server, "first") == core_count()
        expected = dict.fromkeys(("first", "second"), core_count() // 2)
        last: dict[str, int] = {}
        deadline = time.monotonic() + 20

        def drive(model: str) -> None:
            while time.monotonic() < deadline and last != expected:
                last[model] = thread_count(server, model)

        threads = [threading.Thread(target=drive, args=(name,)) for name in expected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert last == expected
