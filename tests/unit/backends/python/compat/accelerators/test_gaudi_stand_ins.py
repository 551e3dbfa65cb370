"""What model files call on a Gaudi machine, called where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import cached

PROGRAM = Path(__file__).with_name("stand_in_program.py")
LAUNCH = Path(__file__).with_name("stand_in_launch.py")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(LAUNCH), str(cached("qwen2")), str(PROGRAM)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("in place of an HPU") == 1
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_hpu_is_the_cpu_wherever_torch_takes_a_device(facts: dict[str, Any]) -> None:
    assert facts["sums"] == [6.0] * 7
    assert facts["devices"] == ["cpu"]
    assert facts["device"] == "hpu"
    assert facts["module_hpu"]
    assert facts["loaded"]
    assert facts["autocast"] == "torch.bfloat16"


def test_graphs_and_compiled_models_are_plain_calls(facts: dict[str, Any]) -> None:
    assert facts["compiled"]
    assert "wrap_in_hpu_graph" in facts["replay"]


def test_the_model_sees_a_device_and_libraries_do_not(facts: dict[str, Any]) -> None:
    assert facts["available"] == [True, 1, "CPU in place of an HPU"]
    assert facts["library_sees_hpu"] is False


def test_versions_can_be_asked_for(facts: dict[str, Any]) -> None:
    assert facts["version"] == 1
    assert "optimum-habana 99.0" in facts["too_new"]


def test_generate_takes_the_options_of_gaudi_and_no_others(facts: dict[str, Any]) -> None:
    assert facts["same_answer"]
    assert facts["tokens"] == [4, 4]
    assert facts["refused"]
