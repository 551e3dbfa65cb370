"""The guides' own code, run: the model that getting-started writes, and the test that python-models shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.cli import main as trireme_command
from trireme.testing import load_model

ROOT = Path(__file__).resolve().parents[2]


def test_first_model_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    for target, text in re.findall(r"^cat > (\S+) <<'END'\n(.*?)^END$", guide, re.DOTALL | re.MULTILINE):
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert trireme_command.main(["config", "check", "model_repository/reverse"]) == 0
    with load_model("model_repository/reverse") as reverse:
        answer = reverse.infer(text_input=np.array([b"stressed"], dtype=np.object_))
    assert answer["text_output"].tolist() == [b"desserts"]


def test_test_of_the_guide_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs/python-models.md").read_text(encoding="utf-8")
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "load_model" in text]
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/python-models.md", "exec"), names)
    names["test_adder_adds"]()


@pytest.mark.parametrize("name", ["adder", "shout", "storyteller"])
def test_example_model_can_be_tested_without_a_server(name: str) -> None:
    inputs: dict[str, dict[str, Any]] = {
        "adder": {"A": np.ones((1, 4), np.float32), "B": np.ones((1, 4), np.float32)},
        "shout": {"text_input": np.array([b"hi"], dtype=np.object_)},
        "storyteller": {"text_input": np.array([b"We"], dtype=np.object_), "max_words": np.array([3], np.int32)},
    }
    with load_model(ROOT / "examples/model_repository" / name) as model:
        answers = model.stream(**inputs[name]) if name == "storyteller" else [model.infer(**inputs[name])]
    values = [next(iter(answer.values())).ravel().tolist() for answer in answers if len(answer)]
    expected = {"adder": [[2.0] * 4], "shout": [[b"HI!!!"]], "storyteller": [[b"We "], [b"rowed "], [b"through "]]}
    assert values == expected[name]
