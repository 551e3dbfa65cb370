"""What is asked of Gaudi's software where it is installed: packages of these names that note how they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.gaudi.accelerator import Accelerator, accelerator_for

RECORDER = "calls = []\ndef {name}(*args):\n    calls.append(args)\n    return 'wrapped' if args else None\n"
FILES = {
    "habana_frameworks/torch/core.py": RECORDER.format(name="mark_step"),
    "habana_frameworks/torch/hpu.py": RECORDER.format(name="wrap_in_hpu_graph"),
    "optimum/habana/transformers/modeling_utils.py": RECORDER.format(name="adapt_transformers_to_gaudi"),
}


@pytest.fixture
def gaudi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the packages."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("habana_frameworks", "optimum")]:
        del sys.modules[name]


def calls(module: str) -> list[Any]:
    return list(importlib.import_module(module).calls)


def test_lazy_mode_records_graphs_and_flushes_steps(gaudi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    accelerator = accelerator_for("hpu:3")
    assert accelerator == Accelerator("hpu", is_hpu=True, is_lazy=True, is_adapted=True)
    assert len(calls("optimum.habana.transformers.modeling_utils")) == 1
    assert accelerator.graphed("model", uses_graphs=True, compiles=False) == "wrapped"
    assert calls("habana_frameworks.torch.hpu") == [("model",)]
    assert accelerator.graphed("model", uses_graphs=False, compiles=True) == "model"
    accelerator.finish_step()
    assert calls("habana_frameworks.torch.core") == [()]
    wanted = {"lazy_mode": True, "hpu_graphs": True, "profiling_steps": 0, "profiling_warmup_steps": 0}
    assert accelerator.generate_options(uses_graphs=True) == wanted
    assert accelerator.static_options()["static_shapes"] is True


def test_eager_mode_has_no_graphs_and_nothing_to_flush(gaudi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    accelerator = accelerator_for("hpu")
    assert not accelerator.is_lazy
    assert accelerator.graphed("model", uses_graphs=True, compiles=False) == "model"
    accelerator.finish_step()
    assert calls("habana_frameworks.torch.core") == calls("habana_frameworks.torch.hpu") == []
    assert accelerator.generate_options(uses_graphs=True)["hpu_graphs"] is False


def test_without_optimum_habana_transformers_is_told_nothing_new(gaudi: Path) -> None:
    (gaudi / "optimum/habana/transformers/modeling_utils.py").unlink()
    accelerator = accelerator_for("hpu")
    assert accelerator.is_hpu
    assert accelerator.generate_options(uses_graphs=True) == {}
    assert accelerator.static_options() == {"cache_implementation": "static"}


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_other_devices_need_nothing(device: str) -> None:
    accelerator = accelerator_for(device)
    assert accelerator == Accelerator(device)
    assert accelerator.graphed("model", uses_graphs=True, compiles=True) == "model"
    accelerator.finish_step()
    assert accelerator.generate_options(uses_graphs=True) == {}
