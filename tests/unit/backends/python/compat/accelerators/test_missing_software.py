"""A model that fails for want of an accelerator's software: what it is told, and who is helped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trireme.backends.neuron import load_plan
from trireme.backends.python.compat.accelerators import gaudi_finder, missing_software, neuron_finder
from trireme.backends.python.compat.second_try import with_second_try

Run = Callable[..., dict[str, Any]]
ROOTS = ("habana_frameworks", "optimum", "torch_neuron", "torch_neuronx")
GUARDED = "try:\n    import {0}\n    found = True\nexcept ImportError:\n    found = False\n"
REWORDED = """try:
    import {0}
    found = True
except ImportError as e:
    raise SystemExit("no accelerator") from e
"""


@pytest.fixture(autouse=True)
def _process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ours = (gaudi_finder.StandInFinder, neuron_finder.NeuronFinder)
    monkeypatch.setattr(sys, "meta_path", [entry for entry in sys.meta_path if not isinstance(entry, ours)])
    monkeypatch.delenv("TRIREME_COMPAT", raising=False)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOTS]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "name", "package", "word"),
    [
        ("import habana_frameworks.torch", "habana_frameworks", "habana-torch-plugin and optimum-habana", "gaudi"),
        ("import optimum.habana", "optimum", "habana-torch-plugin and optimum-habana", "gaudi"),
        ("import torch_neuron", "torch_neuron", "torch-neuron", "neuron"),
        ("import torch_neuronx", "torch_neuronx", "torch-neuronx", "neuron"),
    ],
)
def test_by_default_the_load_says_what_is_missing_and_how_to_go_on(
    run: Run, text: str, name: str, package: str, word: str
) -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        with_second_try(lambda: run(text))
    told = str(raised.value)
    assert told.startswith(f"'{name}' is not installed. On a machine with ")
    assert f"install {package}; --devices=cpu, or compat '{word}', serves" in told
    assert raised.value.name == name


@pytest.mark.parametrize(("name", "word"), [("habana_frameworks", "gaudi"), ("torch_neuron", "neuron")])
def test_on_request_the_cpu_stands_in_after_the_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, word: str
) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", f"off,{word}")
    text = f"began.append(1)\nimport {name}\n"
    began: list[int] = []
    monkeypatch.setattr("builtins.began", began, raising=False)
    assert name in with_second_try(lambda: run(text))
    assert len(began) == 2
    assert capsys.readouterr().err.count("is not installed: this model runs on the CPU in place of") == 1


@pytest.mark.parametrize(("name", "word"), [("habana_frameworks", "gaudi"), ("torch_neuron", "neuron")])
def test_a_file_that_has_another_way_takes_it(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, word: str) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", word)
    assert with_second_try(lambda: run(GUARDED.format(name)))["found"] is False


@pytest.mark.parametrize(("name", "word"), [("habana_frameworks", "gaudi"), ("torch_neuron", "neuron")])
def test_a_file_that_only_words_the_failure_anew_has_no_other_way(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, word: str
) -> None:
    with pytest.raises(SystemExit, match="no accelerator"):
        with_second_try(lambda: run(REWORDED.format(name)))
    monkeypatch.setenv("TRIREME_COMPAT", word)
    assert with_second_try(lambda: run(REWORDED.format(name)))["found"] is True


def test_a_library_that_fails_is_not_helped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "gaudi")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'habana_frameworks'$"):
        with_second_try(lambda: run("import habana_frameworks", "site-packages/library.py"))


def test_a_model_on_real_cores_does_not_land_on_the_cpu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_plan, "is_on_neuron_cores", lambda: True)
    monkeypatch.setenv("TRIREME_COMPAT", "neuron")
    with pytest.raises(ModuleNotFoundError, match="this machine has NeuronCores, and the model needs the package"):
        with_second_try(lambda: run("import torch_neuronx"))


def test_other_failures_are_nobodys_business() -> None:
    for error in (ValueError("x"), ModuleNotFoundError("x", name="numpy.nowhere"), ModuleNotFoundError("x")):
        assert not missing_software.stand_in_for(error)


def test_causes_that_form_a_circle_are_looked_through_once(run: Run) -> None:
    first, second = ValueError("first"), ModuleNotFoundError("second", name="nobody")
    first.__cause__, second.__cause__ = second, first
    assert not missing_software.stand_in_for(first)
