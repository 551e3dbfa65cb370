"""Who gets a stand-in for Gaudi's software, and who does not. Nothing here imports torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.python.compat.accelerators import gaudi_finder

ROOTS = ("habana_frameworks", "optimum")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    others = [entry for entry in sys.meta_path if not isinstance(entry, gaudi_finder.StandInFinder)]
    monkeypatch.setattr(sys, "meta_path", others)
    gaudi_finder.install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOTS]:
        del sys.modules[name]


def test_the_finder_is_installed_once_and_last() -> None:
    assert gaudi_finder.install() is False
    kinds = [type(entry) for entry in sys.meta_path]
    assert kinds.count(gaudi_finder.StandInFinder) == 1
    assert kinds[-1] is gaudi_finder.StandInFinder


def test_a_model_gets_the_stand_in_and_the_log_says_so_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert "habana_frameworks" in run("import habana_frameworks\n")
    del sys.modules["habana_frameworks"]
    run("import habana_frameworks\n")
    warned = capsys.readouterr().err.strip().splitlines()
    assert len(warned) == 1
    assert warned[0].startswith(
        "W model.py:1] 'habana_frameworks' is not installed: this model runs on the CPU in place "
    )
    assert "as --devices or compat 'gaudi' says" in warned[0]
    assert "install habana-torch-plugin and optimum-habana" in warned[0]


def test_asking_what_is_installed_is_answered_with_the_truth(run: Run) -> None:
    assert run("import importlib.util\nspec = importlib.util.find_spec('habana_frameworks')\n")["spec"] is None
    assert importlib.util.find_spec("habana_frameworks") is None


def test_a_library_finds_nothing(run: Run) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'habana_frameworks'$"):
        run("import habana_frameworks", "site-packages/library.py")


def test_other_parts_of_optimum_are_not_ours(run: Run) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'optimum\.onnxruntime'$"):
        run("import optimum.onnxruntime")


def test_a_module_that_has_no_stand_in_is_named(run: Run) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'habana_frameworks\.mediapipe' is not installed, and the CPU's"):
        run("import habana_frameworks.mediapipe")


def test_installed_software_is_not_touched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed" / "habana_frameworks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("is_real = True\n")
    monkeypatch.syspath_prepend(str(package.parent))
    assert run("import habana_frameworks")["habana_frameworks"].is_real
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'optimum'$"):
        run("import optimum.habana.utils")  # the model must not land on the CPU of a Gaudi machine
