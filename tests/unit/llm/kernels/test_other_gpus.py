"""The kernels compiled for GPUs that this machine does not have; minutes in all, and only where there is a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("capability", ["8.0", "8.9", "9.0"])
def test_launches_fit_the_gpu(capability: str) -> None:
    script = Path(__file__).with_name("compiled_launches.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run([sys.executable, script, capability], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    launches = found["launches"]
    assert len(launches) == (54 if capability >= "8.9" else 34)
    assert {name: launch["shared"] for name, launch in launches.items() if launch["shared"] > found["limit"]} == {}
    waiting = {name for name, launch in launches.items() if launch["waits"]}
    of_layers = {name for name, launch in launches.items() if launch["part"] == "layers"}
    assert waiting == (of_layers if capability >= "9.0" else set())
