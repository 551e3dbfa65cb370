"""A strict type checker follows what files of users import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trireme

FILE = """
import numpy as np

from trireme.plugins import Backend, BackendServices, BatchRunner, ModelSource, PythonBackend
from trireme.llm import Engine, SamplingParams
from trireme.models import CausalLanguageModel, NeuronModel, TextPromptModel
from trireme.testing import load_model


class TritonPythonModel(CausalLanguageModel):
    device_kinds = ("cpu",)


class Prompts(TextPromptModel):
    def finalize(self) -> None:
        super().finalize()


class Compiled(NeuronModel):
    def finalize(self) -> None:
        super().finalize()


def create(source: ModelSource, services: BackendServices) -> Backend:
    return PythonBackend(source, services)


def ask() -> None:
    with load_model("models/shout") as model:
        reveal_type(model.infer({"IN": np.zeros(1)})["OUT"])
    with Engine.load("folder") as engine:
        reveal_type(engine.generate(["Hello"], SamplingParams(max_tokens=1))[0].text)


reveal_type(TritonPythonModel().input_name)
"""


WRONG = "from trireme.models import TextPromptsModel\n"
NOT_READ = (
    *("_VF", "_decomp.*", "_dynamo.*", "_export.*", "_functorch.*", "_higher_order_ops.*", "_inductor.*", "_library.*"),
    *("_native.*", "_prims.*", "_prims_common.*", "_refs.*", "_subclasses.*", "_tensor_docs", "_torch_docs", "ao.*"),
    *("distributed.*", "distributions.*", "export.*", "fx.*", "jit.*", "linalg.*", "masked.*", "onnx.*", "optim.*"),
    *("package.*", "profiler.*", "sparse.*", "testing.*", "xpu.*"),
)
"""Modules of torch that no type of a public address comes from: most of what a type checker would read."""
CONFIG = f"[mypy]\n[mypy-{','.join(f'torch.{name}' for name in NOT_READ)}]\nfollow_imports = skip\n"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of a good file and of a wrong one; the package is read as one that is installed, for its types
    alone, and nothing is kept for a second time."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("files")
    (folder / "good.py").write_text(FILE)
    (folder / "wrong.py").write_text(WRONG)
    (folder / "mypy.ini").write_text(CONFIG)
    options = ("--strict", "--config-file=mypy.ini", f"--cache-dir={os.devnull}", "--follow-imports=silent")
    words = [sys.executable, "-m", "mypy", *options, "good.py", "wrong.py"]
    source = str(Path(trireme.__file__).parents[1])
    environment = {**os.environ, "MYPYPATH": source} if not source.endswith("-packages") else dict(os.environ)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_file_that_imports_public_addresses_passes_a_strict_type_checker(told: list[str]) -> None:
    found = [line for line in told if line.startswith("good.py")]
    assert [line for line in found if ": error: " in line] == []
    types = [line.partition("Revealed type is ")[2].replace("builtins.", "") for line in found]
    assert "ndarray[" in types[0]
    assert types[1:] == ['"str"', '"str"']


def test_a_name_that_there_is_none_of_is_told_by_the_type_checker(told: list[str]) -> None:
    found = [line for line in told if line.startswith("wrong.py")]
    assert 'Module "trireme.models" has no attribute "TextPromptsModel"; maybe "TextPromptModel"?' in found[0]
