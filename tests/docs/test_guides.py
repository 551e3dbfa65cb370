"""Code and tables of the guides that are no programs by themselves, and the examples, in a test's own process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.frontends.processes.count import front_end_count
from trireme.testing import load_model

ROOT = Path(__file__).resolve().parents[2]


def test_class_of_the_guide_is_a_model(tmp_path: Path) -> None:
    guide = (ROOT / "docs/python-models.md").read_text(encoding="utf-8")
    block = next(text for text in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "auto_complete" in text)
    (tmp_path / "double/1").mkdir(parents=True)
    (tmp_path / "double/1/model.py").write_text(block, encoding="utf-8")
    with load_model(tmp_path / "double") as model:
        assert model.infer(x=np.array([[1.0, 2.0]], np.float32))["y"].tolist() == [[2.0, 4.0]]


def test_stream_of_the_guide_sends_its_words(tmp_path: Path) -> None:
    guide = (ROOT / "docs/python-models.md").read_text(encoding="utf-8")
    block = next(text for text in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "async def execute" in text)
    (tmp_path / "words/1").mkdir(parents=True)
    (tmp_path / "words/1/model.py").write_text(block, encoding="utf-8")
    (tmp_path / "words/config.pbtxt").write_text(
        'backend: "python"\nmodel_transaction_policy { decoupled: true }\n'
        'input [ { name: "text_input", data_type: TYPE_STRING, dims: [ 1 ] } ]\n'
        'output [ { name: "text_output", data_type: TYPE_STRING, dims: [ 1 ] } ]\n'
    )
    with load_model(tmp_path / "words") as model:
        answers = model.stream(text_input=np.array([b"go"], np.object_))
        assert [answer["text_output"][0] for answer in answers if len(answer)] == [b"one", b"two", b"three"]


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


def test_guide_tells_how_many_front_end_processes_are_chosen() -> None:
    guide = (ROOT / "docs/front-end-processes.md").read_text(encoding="utf-8")
    lines = [line for line in guide.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    head = next(row for row in rows if row[0] == "cores, instances")
    table = [row for row in rows if len(row) == len(head) and re.fullmatch(r"[\d to]+", row[0])]
    cores = [core_count for row in table for core_count in core_counts(row[0])]
    assert (cores[0], cores[-1]) == (1, 192)
    for row in table:
        for core_count in core_counts(row[0]):
            chosen = [front_end_count(core_count, int(count), int(count)) for count in head[1:]]
            assert chosen == [int(cell) for cell in row[1:]], core_count


def core_counts(cell: str) -> list[int]:
    """Both ends of `1 to 7`, or the one number."""
    return [int(number) for number in cell.split(" to ")]
