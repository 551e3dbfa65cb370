"""Who gets a stand-in for Neuron's PyTorch packages, and who does not. Nothing here imports torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.compat.accelerators import neuron_finder
from trireme.backends.python.pb_utils import runtime as pb_runtime

NAMES = ("torch_neuron", "torch_neuronx")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    others = [entry for entry in sys.meta_path if not isinstance(entry, neuron_finder.NeuronFinder)]
    monkeypatch.setattr(sys, "meta_path", others)
    neuron_finder.install()
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def test_the_finder_is_installed_once() -> None:
    assert neuron_finder.install() is False
    assert [type(entry) for entry in sys.meta_path].count(neuron_finder.NeuronFinder) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gets_the_stand_in_and_the_log_says_so_once(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for _ in range(2):
        assert run(f"import {name}\n")[name].DataParallel
        del sys.modules[name]
    (warned,) = capsys.readouterr().err.strip().splitlines()
    assert warned.startswith(f"W model.py:1] '{name}' is not installed: this model runs on the CPU in place of Neuron")
    assert warned.endswith(f"compat 'neuron' says. On a machine with NeuronCores install {name.replace('_', '-')}")


def test_the_first_instance_speaks_for_all(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pb_runtime, "find", lambda: SimpleNamespace(instance_name="rn50_0_3"))
    run("import torch_neuron")
    assert capsys.readouterr().err == ""


def test_what_the_stand_in_has_not_is_told(run: Run) -> None:
    with pytest.raises(AttributeError, match="has no 'trace', only 'DataParallel': models are compiled"):
        run("import torch_neuronx\ntorch_neuronx.trace\n")


def test_libraries_and_questions_get_the_truth(run: Run) -> None:
    assert importlib.util.find_spec("torch_neuronx") is None
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'torch_neuronx'$"):
        run("import torch_neuronx", "site-packages/library.py")


def test_installed_software_is_not_touched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed" / "torch_neuron"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("is_real = True\n")
    monkeypatch.syspath_prepend(str(package.parent))
    assert run("import torch_neuron")["torch_neuron"].is_real
    assert neuron_finder.NeuronFinder().find_spec("torch.neuron") is None  # belongs to the package that is there
